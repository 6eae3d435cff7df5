#define _GNU_SOURCE
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "constants.h"

/* Whether a root is private, so that its log may be made. */
static int is_private(const char *root) {
    char path[PATH_MAX + 32];
    struct stat status;
    snprintf(path, sizeof path, "%s/v1", root);
    return !lstat(path, &status) && S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 077);
}

int journal_hits(const char *root, const char *program, unsigned long long hits, unsigned long long saved_ns) {
    char path[PATH_MAX + 32], line[1024];
    struct stat status;
    struct timespec now;
    for (const char *at = program; *at; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\') return 0;
    if (snprintf(path, sizeof path, "%s/v1", root) >= PATH_MAX) return 0;
    if (!lstat(path, &status) && (status.st_uid != geteuid() || status.st_mode & 022)) return 0;
    strcat(path, "/log.jsonl");
    /* Without O_NONBLOCK a FIFO would wait for its other end. */
    int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, fd = open(path, flags);
    if (fd < 0 && errno == ENOENT && is_private(root)) fd = open(path, flags | O_CREAT, 0600);
    if (fd < 0)
        return (errno != ENOENT || access(root, W_OK)) && (errno == EROFS || errno == EACCES || errno == EPERM);
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(line, sizeof line,
                        "{\"kind\":\"process\",\"when_ns\":%llu,\"command\":\"%s\",\"pid\":%d,\"hits\":%llu,\"misses\":0,"
                        "\"saved_ns\":%llu}\n",
                        (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec, program,
                        (int)getpid(), hits, saved_ns);
    int is_ours = !fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                  status.st_nlink == 1 && status.st_size < LOG_CAP;
    int is_written = is_ours && size < (int)sizeof line && write(fd, line, (size_t)size) == size;
    close(fd);
    return is_written;
}
