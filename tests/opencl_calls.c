/* Wraps the OpenCL loader for PyOpenCL, and writes the name of each call that builds or loads to the
   file that CALLS names, before it passes the call on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int find(struct dl_phdr_info *each, size_t size, void *found) {
    if (!strstr(each->dlpi_name, "/libOpenCL")) return 0;
    *(void **)found = dlopen(each->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    return 1;
}

static void *real(const char *name) {
    void *loader = NULL;
    FILE *calls = fopen(getenv("CALLS"), "a");
    fprintf(calls, "%s\n", name);
    fclose(calls);
    dl_iterate_phdr(find, &loader);
    return dlsym(loader, name);
}

typedef void *(*Create)(void *, unsigned, const void *, const void *, const void *, const void *, int *);
void *clCreateProgramWithBinary(void *a, unsigned b, const void *c, const void *d, const void *e, const void *f, int *g) {
    return ((Create)real("clCreateProgramWithBinary"))(a, b, c, d, e, f, g);
}
typedef void *(*FromSource)(void *, unsigned, const void *, const void *, int *);
void *clCreateProgramWithSource(void *a, unsigned b, const void *c, const void *d, int *e) {
    return ((FromSource)real("clCreateProgramWithSource"))(a, b, c, d, e);
}
typedef int (*Build)(void *, unsigned, const void *, const void *, const void *, const void *);
int clBuildProgram(void *a, unsigned b, const void *c, const void *d, const void *e, const void *f) {
    return ((Build)real("clBuildProgram"))(a, b, c, d, e, f);
}
