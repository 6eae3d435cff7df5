/* Filters of system calls: a sandbox may end a program at socket() or utimensat(), called only because of us. */
#ifndef GPUCACHE_FILTERS_H
#define GPUCACHE_FILTERS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this thread has a filter that `gpucache run` does not have, or may have one, as its status cannot be read.
   Asked each time, as a program may install one between two builds; filters of a container are those of `run`, too.
   For the fields see proc_pid_status(5). */
static inline int is_filtered(void) {
    const char *given = secure_getenv("GPUCACHE_RUN_FILTERS");
    long own_mode, own_count, mode = -1, count = -1;
    char text[8192], *at;
    if (!given || sscanf(given, "%ld:%ld", &own_mode, &own_count) != 2) return 0;
    int kept = errno;
    int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    errno = kept;
    if (size <= 0) return 1;
    text[size] = 0;
    if ((at = strstr(text, "\nSeccomp:"))) mode = strtol(at + strlen("\nSeccomp:"), NULL, 10);
    if ((at = strstr(text, "\nSeccomp_filters:"))) count = strtol(at + strlen("\nSeccomp_filters:"), NULL, 10);
    return count >= 0 && own_count >= 0 ? count > own_count : mode > own_mode;
}

#endif
