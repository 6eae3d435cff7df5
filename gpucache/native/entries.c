/* Entries of gpucache's own store, read for an index that refers to them: every byte is checked at every hit.

   gpucache/store/format.py describes them, gpucache/store/layout.py where they are, gpucache/store/trust.py
   whose files are trusted. */
#define _GNU_SOURCE
#include "entries.h"
#include "filters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHECKED 80 /* of the header's bytes, by the first sum */
#define HEAD_CAP (1u << 20)
#define DETAIL_CAP (64u << 20)
#define TOTAL_CAP (UINT64_C(4) << 30)
#define FRONT (32u << 10) /* of an entry is read at once, in most cases all */
#define RECENCY_NS (INT64_C(60) * 1000000000) /* as in gpucache/store/root_folder.py */

static int is_believed(const struct stat *status) {
    return (!status->st_uid || status->st_uid == geteuid()) && !(status->st_mode & 022);
}

int is_trusted(int fd, struct stat *status) { return !fstat(fd, status) && is_believed(status); }

int read_at(int fd, void *bytes, size_t size, uint64_t from) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)bytes + done, size - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        done += (size_t)got;
    }
    return 1;
}

int open_above(int folder, const char *path, int flags) {
    int fd = openat(folder, path, O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0 || fd > 2) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return higher;
}

int open_root(const char **roots) {
    char path[PATH_MAX];
    struct stat link, status;
    size_t size = strcspn(*roots, ":");
    int fd = -1;
    if (size && size < sizeof path) {
        memcpy(path, *roots, size);
        path[size] = 0;
        fd = open_above(AT_FDCWD, path, O_DIRECTORY | O_NOFOLLOW);
        if (fd < 0 && !lstat(path, &link) && S_ISLNK(link.st_mode) && (!link.st_uid || link.st_uid == geteuid()))
            fd = open_above(AT_FDCWD, path, O_DIRECTORY);
        if (fd >= 0 && !is_trusted(fd, &status)) {
            close(fd);
            fd = -1;
        }
    }
    *roots += size + ((*roots)[size] == ':');
    return fd;
}

int opens_at_once;

/* Open a path step by step, none of them a link. */
static int open_steps(int root, const char *path) {
    int at = root;
    for (const char *end; at >= 0 && (end = strchr(path, '/')); path = end + 1) {
        char step[NAME_MAX + 1];
        snprintf(step, sizeof step, "%.*s", (int)(end - path), path);
        int next = open_above(at, step, O_DIRECTORY | O_NOFOLLOW);
        if (at != root) close(at);
        at = next;
    }
    int fd = at < 0 ? -1 : open_above(at, path, O_NOFOLLOW);
    if (at >= 0 && at != root) close(at);
    return fd;
}

int open_below(int root, const char *path, struct stat *status) {
    int fd = -1;
    errno = ENOSYS;
#ifdef SYS_openat2 /* linux/openat2.h, which older systems lack: flags, mode, RESOLVE_NO_SYMLINKS */
    uint64_t how[3] = {O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0, 4};
    if (opens_at_once && !prctl(PR_GET_SECCOMP, 0, 0, 0, 0)) /* a filter may be installed at any time */
        fd = (int)syscall(SYS_openat2, root, path, how, sizeof how);
#endif
    if ((fd >= 0 && fd <= 2) || (fd < 0 && errno != ENOENT)) {
        if (fd >= 0) close(fd);
        fd = open_steps(root, path);
    }
    if (fd < 0 || (is_trusted(fd, status) && S_ISREG(status->st_mode))) return fd;
    close(fd);
    return -1;
}

int entry_lengths(const unsigned char *header, uint64_t size, struct lengths *is) {
    uint64_t lengths = number_at(header + 8), total = number_at(header + 32);
    *is = (struct lengths){lengths >> 32, number_at(header + 16), number_at(header + 24), 0};
    if (memcmp(header, "GPUCACHE", 8) || (lengths & 0xffffffff) != 1 || number_at(header + 40)) return 0;
    if (is->head > HEAD_CAP || is->detail > DETAIL_CAP || total > TOTAL_CAP || total != size) return 0;
    is->at = (ENTRY_HEADER + is->head + is->detail + 63) / 64 * 64;
    return is->at <= total && total - is->at == is->payload;
}

int entry_sum(unsigned char *front, const struct lengths *is, unsigned char sum[16]) {
    for (uint64_t i = ENTRY_HEADER + is->head + is->detail; i < is->at; i++)
        if (front[i]) return 0;
    /* The bytes of the sum are contiguous: the header's part, then head and detail. */
    memmove(front + ENTRY_HEADER - CHECKED, front, CHECKED);
    xxh3(front + ENTRY_HEADER - CHECKED, CHECKED + is->head + is->detail, sum);
    return 1;
}

/* Header, head and detail of an open file: 1 if they are sound and match the reference, -1 if another entry is under
   its key, else 0. */
static int is_described(struct entry *entry, const struct reference *reference, uint64_t size) {
    unsigned char *header, sum[16];
    struct lengths is;
    entry->read = size < FRONT ? size : FRONT;
    if (size < ENTRY_HEADER || !(header = entry->front = malloc(FRONT)) || !read_at(entry->fd, header, entry->read, 0))
        return 0;
    if (!entry_lengths(header, size, &is) || is.payload > WIRE_MAX_BYTES) return 0;
    entry->head = is.head;
    entry->size = is.payload;
    entry->at = is.at;
    if (memcmp(header + 48, reference->key, 32)) return 0;
    if (!reference->is_key && memcmp(header + 80, reference->sum, 16)) return -1;
    unsigned char wanted[16];
    memcpy(wanted, header + 80, 16);
    memcpy(entry->sum, header + 96, 16);
    if (entry->at > entry->read) {
        unsigned char *more = realloc(entry->front, entry->at);
        if (!more) return 0;
        entry->front = more;
        if (!read_at(entry->fd, more + entry->read, entry->at - entry->read, entry->read)) return 0;
        entry->read = entry->at;
    }
    return entry_sum(entry->front, &is, sum) && !memcmp(sum, wanted, 16);
}

/* When an entry was made, which its time of change tells until its first use: of one by its key as its head has it. */
static int64_t created_ns(const struct reference *reference, const struct entry *entry) {
    static const char label[] = "\"created_ns\":";
    if (!reference->is_key) return (int64_t)reference->created_ns;
    const char *head = (const char *)entry->front + ENTRY_HEADER, *at = memmem(head, entry->head, label, strlen(label));
    int64_t number = 0;
    for (at = at ? at + strlen(label) : head; at < head + entry->head && *at >= '0' && *at <= '9' && number < INT64_MAX / 20;)
        number = 10 * number + (*at++ - '0');
    return number;
}

void entry_close(struct entry *entry) {
    if (entry->fd >= 0) close(entry->fd);
    free(entry->front);
    *entry = (struct entry){.fd = -1};
}

int entry_open(const struct roots *roots, const struct reference *reference, struct entry *entry) {
    static const char digits[] = "0123456789abcdef";
    char name[64 + 1], path[sizeof "v1/entries/00/.gpc" + 64];
    for (int i = 0; i < 32; i++) {
        name[2 * i] = digits[reference->key[i] >> 4];
        name[2 * i + 1] = digits[reference->key[i] & 15];
    }
    name[64] = 0;
    snprintf(path, sizeof path, "v1/entries/%.2s/%s.gpc", name, name);
    for (const char *rest = roots->all; *rest;) {
        struct stat status;
        int own = rest == roots->all, is_open = rest == roots->open, root = is_open ? roots->fd : open_root(&rest);
        if (is_open) rest += strcspn(rest, ":"), rest += *rest == ':';
        *entry = (struct entry){.fd = root < 0 ? -1 : open_below(root, path, &status)};
        if (root >= 0 && !is_open) close(root);
        if (entry->fd < 0) continue;
        int described = is_described(entry, reference, (uint64_t)status.st_size);
        if (described > 0) {
            int64_t used = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            int64_t since = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - used;
            int is_old = used == created_ns(reference, entry) || since > RECENCY_NS || since < -RECENCY_NS;
            entry->is_used = own && is_old && status.st_uid == geteuid();
            return 1;
        }
        entry_close(entry);
        if (!described) return 0; /* the next root may have another, but a fault of this one must be reported */
    }
    return 0;
}

int entry_read(struct entry *entry, void *bytes, int may_write) {
    unsigned char sum[16];
    uint64_t had = entry->read - entry->at;
    memcpy(bytes, entry->front + entry->at, had);
    int sound = read_at(entry->fd, (char *)bytes + had, entry->size - had, entry->read);
    if (sound) xxh3(bytes, entry->size, sum);
    sound = sound && !memcmp(sum, entry->sum, 16);
    if (sound && entry->is_used && may_write && !is_filtered()) {
        struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
        if (futimens(entry->fd, now)) sound = 1; /* only the record of this use is lost */
    }
    entry_close(entry);
    return sound;
}
