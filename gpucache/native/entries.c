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
#include <time.h>
#include <unistd.h>

#define HEADER 112
#define CHECKED 80 /* of the header's bytes, by the first sum */
#define HEAD_CAP (1u << 20)
#define DETAIL_CAP (64u << 20)
#define TOTAL_CAP (UINT64_C(4) << 30)
#define RECENCY_NS (INT64_C(60) * 1000000000) /* as in gpucache/store/root_folder.py */

static int is_believed(const struct stat *status) {
    return (status->st_uid == geteuid() || !status->st_uid) && !(status->st_mode & 022);
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
        fd = open_above(AT_FDCWD, path, O_DIRECTORY);
        int trusted = fd >= 0 && is_trusted(fd, &status) && !lstat(path, &link) &&
                      (!S_ISLNK(link.st_mode) || link.st_uid == geteuid() || !link.st_uid);
        if (fd >= 0 && !trusted) {
            close(fd);
            fd = -1;
        }
    }
    *roots += size + ((*roots)[size] == ':');
    return fd;
}

int open_below(int root, const char *folder, const char *group, const char *name, struct stat *status) {
    const char *const steps[] = {"v1", folder, group};
    int at = root;
    for (int i = 0; i < (group ? 3 : 2) && at >= 0; i++) {
        int next = open_above(at, steps[i], O_DIRECTORY | O_NOFOLLOW);
        if (at != root) close(at);
        at = next;
    }
    int fd = at < 0 ? -1 : open_above(at, name, O_NOFOLLOW);
    if (at >= 0) close(at);
    if (fd < 0 || (is_trusted(fd, status) && S_ISREG(status->st_mode))) return fd;
    close(fd);
    return -1;
}

/* Header, head and detail of an open file: 1 if they are sound and match the reference, -1 if another entry is under
   its key, else 0. */
static int is_described(struct entry *entry, const struct reference *reference, uint64_t size) {
    unsigned char header[HEADER], sum[16], *front;
    if (size < HEADER || !read_at(entry->fd, header, HEADER, 0)) return 0;
    uint64_t lengths = number_at(header + 8), head = lengths >> 32, detail = number_at(header + 16);
    uint64_t total = number_at(header + 32);
    entry->size = number_at(header + 24);
    if (memcmp(header, "GPUCACHE", 8) || (lengths & 0xffffffff) != 1 || number_at(header + 40)) return 0;
    if (head > HEAD_CAP || detail > DETAIL_CAP || total > TOTAL_CAP || total != size) return 0;
    entry->at = (HEADER + head + detail + 63) / 64 * 64;
    if (entry->at > total || total - entry->at != entry->size || entry->size > WIRE_MAX_BYTES) return 0;
    if (memcmp(header + 48, reference->key, 32)) return 0;
    if (memcmp(header + 80, reference->sum, 16)) return -1;
    memcpy(entry->sum, header + 96, 16);
    if (!(front = malloc(entry->at))) return 0;
    memcpy(front, header, CHECKED);
    /* The bytes of the sum are contiguous: the header's part, then head and detail. */
    int sound = read_at(entry->fd, front + CHECKED, entry->at - HEADER, HEADER);
    size_t covered = CHECKED + head + detail;
    for (size_t i = covered; sound && i < entry->at - HEADER + CHECKED; i++) sound = !front[i];
    if (sound) xxh3(front, covered, sum);
    free(front);
    return sound && !memcmp(sum, reference->sum, 16);
}

int entry_open(const char *roots, const struct reference *reference, struct entry *entry) {
    static const char digits[] = "0123456789abcdef";
    char name[64 + sizeof ".gpc"], group[3] = {0};
    for (int i = 0; i < 32; i++) {
        name[2 * i] = digits[reference->key[i] >> 4];
        name[2 * i + 1] = digits[reference->key[i] & 15];
    }
    strcpy(name + 64, ".gpc");
    memcpy(group, name, 2);
    for (int own = 1; *roots; own = 0) {
        struct stat status;
        int root = open_root(&roots);
        *entry = (struct entry){.fd = root < 0 ? -1 : open_below(root, "entries", group, name, &status)};
        if (root >= 0) close(root);
        if (entry->fd < 0) continue;
        int described = is_described(entry, reference, (uint64_t)status.st_size);
        if (described > 0) {
            int64_t used = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            int64_t since = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - used;
            int is_old = used == (int64_t)reference->created_ns || since > RECENCY_NS || since < -RECENCY_NS;
            entry->is_used = own && is_old && status.st_uid == geteuid();
            return 1;
        }
        close(entry->fd);
        if (!described) return 0; /* the next root may have another, but a fault of this one must be reported */
    }
    return 0;
}

int entry_read(struct entry *entry, void *bytes, int may_write) {
    unsigned char sum[16];
    int sound = read_at(entry->fd, bytes, entry->size, entry->at);
    if (sound) xxh3(bytes, entry->size, sum);
    sound = sound && !memcmp(sum, entry->sum, 16);
    if (sound && entry->is_used && may_write && !is_filtered()) {
        struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
        if (futimens(entry->fd, now)) sound = 1; /* only the record of this use is lost */
    }
    close(entry->fd);
    entry->fd = -1;
    return sound;
}
