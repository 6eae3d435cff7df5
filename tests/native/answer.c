/* The index as one function, which tests call through ctypes. */
#define _GNU_SOURCE
#include "index.h"

#define EXPORTED __attribute__((visibility("default")))

/* Answer a question from the index below the first of some roots, which are separated by ':'; payloads are taken
   from any of them. The kind and the fields are those of a request (gpucache/serve/wire.py). 1 and a hit, whose
   fields follow from reply->next on, each a length of four bytes and its bytes, and which must be given to
   gpucache_done(); or 0. Any thread may call; nothing is kept, and errno stays as it is. */
EXPORTED int gpucache_answer(const char *roots, int may_write, unsigned kind, const struct wire_bytes *fields,
                             size_t count, struct wire_reply *reply) {
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    return index_answer_below(roots, may_write, (enum wire_kind)kind, fields, count, reply);
}

EXPORTED void gpucache_done(struct wire_reply *reply) { wire_done(reply); }
