/* Puts nvrtc_shim.c in the place of every NVRTC and hipRTC that a program loads, however it finds it. See
   rtld-audit(7). hipRTC is in libamdhip64, and since ROCm 5.3 in libhiprtc too; only some versions of the former are
   known, as the shim must define every version of symbols that it has.

   The loader passes each file name to this library before it opens it, and takes another in return. The shim in turn
   needs a library that has no file, such as gpucache-nvrtc.so.MAJOR, for which the file is named that the program had
   found. The loader keeps its lock all this time, so the file named last is the shim's dependency.

   The server learns of an NVRTC, and of a loader of OpenCL, as soon as it is looked for, if no index may
   answer instead: it gets ready while the program starts. The message needs no reply; it may be lost. */
#define _GNU_SOURCE
#include "filters.h"
#include "index.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

/* The libraries that there is a shim for: the file that the program found, the same as the shim gets it, and our file. */
#define ONE(of, version) {.name = of, .major = version}
static struct library {
    const char *name;
    int major;
    char found[PATH_MAX], real[PATH_MAX + 4], shim[PATH_MAX + 32];
    int settled; /* the shim replaces this file, and goes on doing so */
} libraries[] = {ONE("nvrtc", 12), ONE("nvrtc", 13), ONE("amdhip64", 5), ONE("amdhip64", 6), ONE("hiprtc", 5),
                 ONE("hiprtc", 6), ONE("hiprtc", 7)};
#define EACH(one) (struct library *one = libraries; one < libraries + sizeof libraries / sizeof *libraries; one++)
static const ElfW(Ehdr) *own;

EXPORTED unsigned la_version(unsigned version) {
    Dl_info info;
    if (!dladdr((void *)la_version, &info)) return 0; /* the loader goes on without us */
    own = info.dli_fbase;
    const char *name = strrchr(info.dli_fname, '/');
    int folder_size = name ? (int)(name - info.dli_fname) : 0;
    for EACH (one)
        snprintf(one->shim, sizeof one->shim, "%.*s/libgpucache_%s_%d.so", folder_size, info.dli_fname, one->name,
                 one->major);
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* Give this thread a vector of TLS blocks that the program's malloc gave. With LD_AUDIT glibc allocates the first
   thread's before that is there, and passes it to realloc as soon as a program opens some 15 libraries with TLS: it
   aborts. The vector's length is before its first block, the thread's pointer to it as in tcbhead_t of glibc's tls.h.
   Until la_objopen() changes it, a cookie is the object, here the program. */
EXPORTED void la_preinit(uintptr_t *cookie) {
    union block {
        size_t length;
        void *value_and_memory[2];
    } **vector = NULL, *copy;
#if defined __x86_64__ && defined __LP64__
    __asm__("mov %%fs:0, %0" : "=r"(vector));
    vector++;
#elif defined __aarch64__
    __asm__("mrs %0, tpidr_el0" : "=r"(vector));
#endif
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym((void *)*cookie, "malloc");
    if (!allocate || !vector || !*vector) return;
    size_t size = ((*vector)[-1].length + 2) * sizeof *copy;
    if (!(copy = allocate(size))) return;
    memcpy(copy, *vector - 1, size);
    *vector = copy + 1;
}

/* The library of a name after a prefix, and whether the name has no version; NULL for any other name. */
static struct library *library_of(const char *name, const char *prefix, int *bare) {
    size_t begin = strlen(prefix), size;
    if (strncmp(name, prefix, begin)) return NULL;
    for EACH (one) {
        size = begin + strlen(one->name);
        if (strncmp(name + begin, one->name, size - begin) || strncmp(name + size, ".so", 3)) continue;
        if ((*bare = !name[size + 3]) || (name[size + 3] == '.' && atoi(name + size + 4) == one->major)) return one;
    }
    return NULL;
}

/* Whether a file is a library that the loader would take: it skips those of other machines. */
static int is_library(const char *path) {
    ElfW(Ehdr) header;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    int whole = read(file, &header, sizeof header) == sizeof header;
    close(file);
    return whole && !memcmp(header.e_ident, own->e_ident, EI_VERSION) && header.e_machine == own->e_machine;
}

/* Notify the server of an NVRTC, once in a process. Descriptors 0 to 2 are left to the program. */
static void announce(void) {
    static int told;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = secure_getenv("GPUCACHE_RUN_SOCKET");
    if (told || !path || strlen(path) >= sizeof address.sun_path) return;
    told = 1;
    if (index_is_there() || is_filtered()) return;
    strcpy(address.sun_path, path);
    const unsigned char frame[] = {4, 0, 0, 0, WIRE_VERSION, 0, WIRE_NVRTC_LOADED, 0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd > 2 && !connect(fd, (struct sockaddr *)&address, sizeof address))
        send(fd, frame, sizeof frame, MSG_NOSIGNAL);
    if (fd >= 0) close(fd);
}

EXPORTED char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag) {
    (void)cookie, (void)flag;
    char target[PATH_MAX], *same = (char *)name;
    const char *base = strrchr(name, '/');
    int bare = 0;
    if (!base) {
        struct library *one = library_of(name, "gpucache-", &bare);
        if (!one || !*one->found) return same;
        one->settled = 1;
        return one->real;
    }
    struct library *one = library_of(base, "/lib", &bare);
    if (!one || strstr(name, "/./") || strlen(name) >= PATH_MAX) return same;
    if (bare) /* a link of a toolkit */
        one = realpath(name, target) ? library_of(strrchr(target, '/'), "/lib", &bare) : NULL;
    if (!one || bare || !is_library(name) || access(one->shim, R_OK)) return same;
    if (strcmp(one->found, name)) {
        if (one->settled) return same; /* a second one of this version stays as it is */
        strcpy(one->found, name);
        /* In another spelling, because the loader would take the shim for a name that it knows. */
        sprintf(one->real, "%.*s/.%s", (int)(base - name), name, base);
    }
    announce();
    return one->shim;
}
