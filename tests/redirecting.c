/* Preloaded, it leads the functions named by macros from TEST_FROM to TEST_TO, and PLAIN ones nowhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *led(const char *path, char *to) {
    const char *from = getenv("TEST_FROM");
    size_t size = strlen(from);
    if (!path || strncmp(path, from, size)) return path;
    snprintf(to, 4096, "%s%s", getenv("TEST_TO"), path + size);
    return to;
}

#define OPEN(name, first, call)                                                                                        \
    int name(first const char *path, int flags, ...) {                                                                 \
        int (*next)() = dlsym(RTLD_NEXT, #name);                                                                       \
        char to[4096];                                                                                                 \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        int mode = va_arg(rest, int);                                                                                  \
        va_end(rest);                                                                                                  \
        return next call;                                                                                              \
    }
#define OTHER(type, name, second)                                                                                      \
    type name(const char *path, second other) {                                                                        \
        type (*next)() = dlsym(RTLD_NEXT, #name);                                                                      \
        char to[4096];                                                                                                 \
        return next(led(path, to), other);                                                                             \
    }
#define NONE
#define FOLDER int folder,

#ifdef open_
OPEN(open, NONE, (led(path, to), flags, mode))
OPEN(open64, NONE, (led(path, to), flags, mode))
#endif
#ifdef openat_
OPEN(openat, FOLDER, (folder, led(path, to), flags, mode))
OPEN(openat64, FOLDER, (folder, led(path, to), flags, mode))
#endif
#ifdef fopen_
OTHER(FILE *, fopen, const char *)
OTHER(FILE *, fopen64, const char *)
#endif
#ifdef stat_
OTHER(int, stat, struct stat *)
OTHER(int, stat64, struct stat64 *)
OTHER(int, lstat, struct stat *)
#endif
#ifdef access_
OTHER(int, access, int)
#endif
#ifdef xstat_
int __xstat(int version, const char *path, struct stat *status) {
    char to[4096];
    (void)version;
    return stat(led(path, to), status);
}
#endif
