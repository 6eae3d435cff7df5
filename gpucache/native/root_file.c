/* The file is a tar file with the files of a root: gpucache/store/root_file.py describes it, and alone writes it. All
   that is unusual is left to Python: damage, a size that no program's cache has, a file of others. */
#define _GNU_SOURCE
#include "root_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512
#define FILE_CAP (256 << 20)
#define MEMBERS_CAP 4096
#define DAY (24 * 60 * 60)
#define RECENT 120 /* each use is recorded of a file that was not used for so long */

/* The log, to which processes append, so that it says nothing about a change. */
#define LOG "v1/log.jsonl"
#define RECORDS "v1/records.row"

static const char *const places[] = {"v1/entries/", "v1/rows/", "v1/closures/", "v1/missed/", "v1/programs/"};

/* What was unpacked. */
static struct {
    char path[PATH_MAX], root[PATH_MAX];
    off_t size;
    size_t count, entries;
    struct member {
        char name[100];
        ino_t inode;
        int64_t day; /* of its last use, of an entry */
    } at[MEMBERS_CAP];
} had;

/* A number in octal digits, between NULs and blanks; -1 if it is none. */
static int64_t octal(const char *at, size_t size) {
    int64_t number = 0;
    while (size && (!*at || *at == ' ')) at++, size--;
    while (size && (!at[size - 1] || at[size - 1] == ' ')) size--;
    for (; size; at++, size--) {
        if (*at < '0' || *at > '7') return -1;
        number = number << 3 | (*at - '0');
    }
    return number;
}

/* Whether a name is one that a root has: below one of its directories, and nothing in it leads elsewhere. */
static int is_in_root(const char *name) {
    size_t place = 0;
    if (!strcmp(name, LOG) || !strcmp(name, RECORDS)) return 1;
    while (place < sizeof places / sizeof *places && strncmp(name, places[place], strlen(places[place]))) place++;
    if (place == sizeof places / sizeof *places) return 0;
    const char *rest = name + strlen(places[place]), *slash = strchr(rest, '/');
    if (!place != !!slash || (slash && (slash - rest != 2 || strchr(slash + 1, '/')))) return 0;
    for (const char *at = rest - 1; *at; at++)
        if (*at == '/' && (at[1] == '.' || at[1] == '/' || !at[1])) return 0;
    return strspn(rest, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-/") == strlen(rest);
}

static int has_sum(const unsigned char *block) {
    int64_t sum = 8 * ' ';
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? 0 : block[i];
    return sum == octal((const char *)block + 148, 8);
}

/* Write one member and remember it. */
static int takes(const char *block, const char *bytes, size_t size) {
    char path[2 * PATH_MAX];
    struct stat status;
    struct member *one = &had.at[had.count];
    if (had.count == MEMBERS_CAP || (block[156] && block[156] != '0') || block[99] || block[345]) return 0;
    int64_t used = octal(block + 136, 12), latest = (int64_t)time(NULL) - RECENT;
    snprintf(one->name, sizeof one->name, "%.99s", block);
    if (used < 0 || !is_in_root(one->name)) return 0;
    if (used > latest) used = latest;
    snprintf(path, sizeof path, "%s/%s", had.root, one->name);
    for (char *at = path + strlen(had.root); at; at = strchr(at + 1, '/')) {
        *at = 0;
        int made = !mkdir(path, 0700) || errno == EEXIST;
        *at = '/';
        if (!made) return 0;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int whole = fd >= 0;
    for (ssize_t got; whole && size; bytes += got, size -= (size_t)got) whole = (got = write(fd, bytes, size)) > 0;
    struct timespec times[2] = {{.tv_sec = used}, {.tv_sec = used}};
    whole = whole && !futimens(fd, times) && !fstat(fd, &status);
    if (fd >= 0) close(fd);
    if (!whole) return 0;
    if (!strcmp(one->name, LOG)) return 1;
    int is_entry = !strncmp(one->name, places[0], strlen(places[0]));
    one->inode = status.st_ino;
    one->day = is_entry ? used / DAY : INT64_MAX;
    had.entries += (size_t)is_entry;
    had.count++;
    return 1;
}

int root_file_unpacks(const char *path, const char *root) {
    static const char zeros[BLOCK];
    struct stat status;
    snprintf(had.path, sizeof had.path, "%s", path);
    snprintf(had.root, sizeof had.root, "%s", root);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), whole = 0;
    int is_ours = fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode) && !(status.st_mode & 022) &&
                  (status.st_uid == geteuid() || !status.st_uid) && status.st_size <= FILE_CAP;
    size_t size = is_ours ? (size_t)status.st_size : 0, done = 0;
    char *bytes = size ? malloc(size) : NULL;
    for (ssize_t got; bytes && done < size && (got = read(fd, bytes + done, size - done)) > 0;) done += (size_t)got;
    if (fd >= 0) close(fd);
    for (size_t at = 0; bytes && done == size && size - at >= BLOCK;) {
        const char *block = bytes + at;
        if ((whole = !memcmp(block, zeros, BLOCK))) break;
        int64_t length = octal(block + 124, 12);
        at += BLOCK;
        if (length < 0 || (uint64_t)length > size - at || !has_sum((const unsigned char *)block)) break;
        if (!takes(block, bytes + at, (size_t)length)) break;
        at += ((size_t)length + BLOCK - 1) / BLOCK * BLOCK;
        if (at > size) break;
    }
    free(bytes);
    had.size = (off_t)size;
    return whole && had.entries;
}

/* How many files are below a directory, at most two levels deep. */
static size_t count_files(const char *place, int levels) {
    char path[2 * PATH_MAX];
    size_t found = 0;
    DIR *names = opendir(place);
    for (struct dirent *each; names && (each = readdir(names));) {
        if (*each->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", place, each->d_name);
        found += levels ? count_files(path, levels - 1) : 1;
    }
    if (names) closedir(names);
    return found;
}

int root_file_is_current(void) {
    char path[2 * PATH_MAX];
    struct stat status;
    size_t found = 0;
    if (access(had.path, F_OK)) return 0;
    for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
        snprintf(path, sizeof path, "%s/%s", had.root, places[place]);
        found += count_files(path, !place);
    }
    snprintf(path, sizeof path, "%s/" RECORDS, had.root);
    found += !access(path, F_OK);
    for (size_t each = 0; each < had.count; each++) {
        snprintf(path, sizeof path, "%s/%s", had.root, had.at[each].name);
        if (lstat(path, &status) || status.st_ino != had.at[each].inode) return 0;
        if (status.st_mtim.tv_sec / DAY > had.at[each].day) return 0;
    }
    return found == had.count;
}

int root_file_put(char *at, int size) {
    static const char *const units[] = {"B", "KiB", "MiB"};
    const char *name = strrchr(had.path, '/') + 1;
    double value = (double)had.size;
    int unit = 0;
    while (value >= (unit ? 1000 : 1024) && unit < 2) value /= 1024, unit++;
    return snprintf(at, (size_t)size, unit && value < 100 ? "; %s unchanged (%zu %s, %.1f %s)" : "; %s unchanged (%zu %s, %.0f %s)",
                    name, had.entries, had.entries == 1 ? "entry" : "entries", value, units[unit]);
}
