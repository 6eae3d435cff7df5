/* Entries and other files below roots of gpucache. Roots are separated by ':', the user's own first. */
#ifndef GPUCACHE_ENTRIES_H
#define GPUCACHE_ENTRIES_H

#include <limits.h>
#include <sys/stat.h>

#include "index.h"

/* An entry as a row of an index names it, and the sum of its description, which identifies it; or by its key alone. */
struct reference {
    unsigned char key[32], sum[16];
    uint64_t created_ns;
    int is_key;
};

/* An entry that is open, its description checked; of its payload the place, size and sum. */
struct entry {
    int fd;
    uint64_t head, at, size, read; /* the bytes of the file that were read already */
    unsigned char *front, sum[16];
    int is_used; /* whether its last use is to be set */
};

#define ENTRY_HEADER 112

#define ID 64 /* room for a build id */

/* The build id of a library's file, or of a loaded one; its size, or 0 without one. */
struct dl_phdr_info;
size_t id_of_file(int fd, unsigned char id[ID]);
size_t id_of_loaded(const struct dl_phdr_info *info, unsigned char id[ID]);

/* The bytes of an entry's parts, and where its payload begins. */
struct lengths {
    uint64_t head, detail, payload, at;
};

/* Roots in their order, separated by ':', and one of them that is open already. */
struct roots {
    const char *all, *open;
    int fd;
};

/* Whether openat2() is called, in threads without a filter of system calls: in programs that chose gpucache alone. */
extern int opens_at_once;

/* Whether an open file or directory belongs to this user or root, and no other user may write to it. */
int is_trusted(int fd, struct stat *status);

int read_at(int fd, void *bytes, size_t size, uint64_t from);

/* The first of some roots, opened, and the others: -1 where it cannot be used. */
int open_root(const char **roots);

/* A trusted file below a root by its path, in which nothing is a link; -1 otherwise. */
int open_below(int root, const char *path, struct stat *status);

/* The lengths in the header of an entry in a file of a size: 1 if they agree. */
int entry_lengths(const unsigned char *header, uint64_t size, struct lengths *is);

/* The sum of a description, over whose header it is made, if only zeros follow it. */
int entry_sum(unsigned char *front, const struct lengths *is, unsigned char sum[16]);

/* Open the entry of a reference: 1, or 0 if it does not exist or has changed. */
int entry_open(const struct roots *roots, const struct reference *reference, struct entry *entry);

/* Read its payload, check it, record its use, and close it. */
int entry_read(struct entry *entry, void *bytes, int may_write);
void entry_close(struct entry *entry);

#endif
