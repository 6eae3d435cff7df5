/* Answers without a server: the rows of roots, each a question with its answer and the conditions of that.

   gpucache/serve/index.py writes and describes their files, one for each question; the payloads of answers are in
   entries of any of the roots. GPUCACHE_RUN_ROOTS names the roots of a run, of which the first is the user's own, and
   GPUCACHE_LAYER those of a program without a server: an exported layer is a root.

   A file is opened for each question and closed again, and replaced as a whole, so that no descriptor, lock
   or mapping is kept. It is read only if this user or root owns it and no other user can write to it. */
#ifndef GPUCACHE_INDEX_H
#define GPUCACHE_INDEX_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

#define WHY_SIZE 512

/* A question as the program asks it, and the directory of its process at its first question. */
struct question {
    enum wire_kind kind;
    const struct wire_bytes *fields;
    size_t count;
    const char *start;
};

/* The positions of the first fields of a request, and of the fields that say which library compiles. */
enum { AT_FOLDER = 1, AT_ENVIRONMENT = 2, AT_DEVICES = 6, DEVICE_FIELDS = 8, AT_NVRTC = 4 };

int is_true(const char *value); /* of a variable that is yes or no */

/* Whether any root of a run has answers. If none has, the server is needed for certain, and may get ready while
   the program starts. In this header, because its caller uses nothing else of the index. */
static inline int index_is_there(void) {
    const char *all = secure_getenv("GPUCACHE_RUN_ROOTS");
    for (int length; all && *all; all += length + (all[length] == ':')) {
        static const char *const files[] = {"v1/records.row", "v1/rows"};
        length = (int)strcspn(all, ":");
        for (int each = 0; length && each < 2; each++) {
            char path[4096];
            int size = snprintf(path, sizeof path, "%.*s/%s", length, all, files[each]);
            if (size > 0 && (size_t)size < sizeof path && !access(path, F_OK)) return 1;
        }
    }
    return 0;
}

/* Read the variable that names roots, of a layer or of a run: whether there are any to ask. */
int index_begin(int of_layer);

/* The answer to a question: 1 and a hit, which must be given to wire_done(), or 0. Changes no errno. */
int index_answer(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *reply);

/* The same from given roots; if it may write, an entry's last use is set. */
int index_answer_below(const char *roots, int may_write, enum wire_kind kind, const struct wire_bytes *fields,
                       size_t count, struct wire_reply *reply);

/* Remember the directory of this process as the one that it began in, unless that is known. */
void index_begin_anywhere(void);

/* Whether this process meets all conditions of an answer to a question: 1, or 0 and why not. Changes no errno. */
int index_meets(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *conditions,
                char why[WHY_SIZE]);

/* Take as many conditions as a record counts, and see whether all of them are met: 1, or 0 and why not. Stamps of
   files, eight bytes each, are for those that have one, in their order. Unless it is NULL, ``looked`` gets a number
   that differs whenever a file of the program's was changed meanwhile, even if it is as before; never 0. */
int conditions_hold(const struct question *question, struct wire_reply *record, struct wire_bytes stamps,
                    uint64_t *looked, char why[WHY_SIZE]);

/* XXH64 of some bytes; the result may be the seed for further bytes. */
uint64_t digest(const void *bytes, size_t size, uint64_t seed);

/* Eight bytes, little-endian. */
static inline uint64_t number_at(const void *bytes) {
    const unsigned char *at = bytes;
    uint64_t low = at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
    return low | (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
}

/* Open, for reading unless the flags say otherwise, as no descriptor below 3: where a program has closed those, others may still use them. */
int open_above(int folder, const char *path, int flags);

/* XXH3-128 of some bytes, as its canonical sixteen. */
void xxh3(const void *bytes, size_t size, unsigned char sum[16]);

void sha256(const void *bytes, size_t size, unsigned char sum[32]);

/* A field, or the next one of a record, as a number in decimal: 1, or 0 if it is not one. */
int number_in(struct wire_bytes field, uint64_t *number);
int next_number(struct wire_reply *record, uint64_t *number);

#endif
