/* A CUDA driver for machines that have none: enough for cuda.core to load a program and to look up its
   kernels. What it is asked is written to the file that DRIVER_LOG names: "load" with the first bytes of
   the program, and "kernel" with the name. No kernel can be launched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
enum { SUCCESS = 0, NOT_FOUND = 500 };

static FILE *asked(void) { return fopen(getenv("DRIVER_LOG"), "a"); }

CUresult cuInit(unsigned flags) { return SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 99000; return SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **text) { *text = "CUDA_ERROR"; return SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "an error"; return SUCCESS; }
CUresult cuGetExportTable(const void **table, const void *id) { return NOT_FOUND; } /* NVRTC asks */

CUresult cuLibraryLoadData(void **library, const void *code, void *jit_options, void **jit_values,
                           unsigned jit_count, void *options, void **values, unsigned count) {
    FILE *log = asked();
    fprintf(log, "load %02x%02x with %u and %u options\n", ((const unsigned char *)code)[0],
            ((const unsigned char *)code)[1], jit_count, count);
    fclose(log);
    *library = (void *)code;
    return SUCCESS;
}

CUresult cuLibraryUnload(void *library) { return SUCCESS; }

CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    FILE *log = asked();
    fprintf(log, "kernel %s\n", name);
    fclose(log);
    *kernel = library;
    return SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
                             int *status) {
    *function = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
    if (status) *status = *function ? 0 : 1;
    return SUCCESS;
}
