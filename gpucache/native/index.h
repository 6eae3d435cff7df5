/* Answers without a server: a file of questions that were answered before, each with what has to be as it was.

   GPUCACHE_LAYER_INDEX names the file, which gpucache/intercept/index.py writes and describes. It is opened for
   each question and closed again, and replaced as a whole, so that no descriptor, lock or mapping is kept. It is
   read only where this user or root owns it and nobody else can write to it. */
#ifndef GPUCACHE_INDEX_H
#define GPUCACHE_INDEX_H

#include "wire.h"

#define WHY_SIZE 512

/* A question as the program asks it, and where its process was when it began to ask. */
struct question {
    enum wire_kind kind;
    const struct wire_bytes *fields;
    size_t count;
    const char *start;
};

/* Where the first fields of a request stand, and those that say which library compiles. */
enum { AT_FOLDER = 1, AT_ENVIRONMENT = 2, AT_DEVICES = 6, DEVICE_FIELDS = 8, AT_NVRTC = 4 };

int is_true(const char *value); /* of a variable that says yes or no */

/* Read GPUCACHE_LAYER_INDEX and GPUCACHE_LAYER_TELL: whether there is an index to ask. */
int index_begin(void);

/* The answer to a question: 1 and a hit, which must be given to wire_done(), or 0. Changes no errno. */
int index_answer(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *reply);

/* Take as many conditions as a record counts, and see whether all of them hold: 1, or 0 and why not. */
int conditions_hold(const struct question *question, struct wire_reply *record, char why[WHY_SIZE]);

/* XXH64 of some bytes; the result may be the seed of what follows. */
uint64_t digest(const void *bytes, size_t size, uint64_t seed);

uint64_t number_at(const void *bytes); /* eight bytes, little-endian */

/* Open for reading, as no descriptor below 3: where a program has closed those, others may still use them. */
int open_above(int folder, const char *path, int flags);

/* The next field as a number in decimal: 1, or 0 where it is none. */
int next_number(struct wire_reply *record, uint64_t *number);

#endif
