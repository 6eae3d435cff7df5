/* The client of gpucache's socket: one connection for each request, and a reply to a question. A question
   that a row answers (index.h) is not sent there, but counted in a file next to the socket if that can be written. Without a
   socket, the rows of a layer serve builds and compiles, and nothing is reported.

   A frame is little-endian: u32 bytes that follow, u16 version, u16 kind, then fields one after another, each
   a u32 length and its bytes. Numbers inside fields are ASCII decimal. gpucache/serve/wire.py is the
   other side.

   The promise to a program: no call of this file waits longer than the time-out for one exchange, raises a signal,
   keeps a descriptor or a lock, or changes errno. After the first failure of any kind, which includes a reply
   that is not understood, this process asks no more. Any thread may call, and so may a child after fork(). */
#ifndef GPUCACHE_WIRE_H
#define GPUCACHE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 1
#define WIRE_MAX_BYTES (256u << 20) /* of a frame after its first length */
#define WIRE_NUMBER_SIZE 24         /* room for any number as text */

enum wire_kind {
    WIRE_BUILD = 1,
    WIRE_BUILT = 2,
    WIRE_REJECTED = 3,
    WIRE_LAUNCHED = 4,
    WIRE_OTHER = 5,
    WIRE_LOADED = 6,
    WIRE_PART = 7,
    WIRE_PART_COMPILED = 8,
    WIRE_LINK = 9,
    WIRE_NOTE = 10,
    WIRE_BUILD_DOUBTED = 11,
    WIRE_COMPILE = 16,
    WIRE_COMPILED = 17,
    WIRE_NVRTC_LOADED = 18,
    WIRE_COMPILE_DOUBTED = 19,
    WIRE_PASS = 0x80,
    WIRE_HIT = 0x81,
    WIRE_MISS = 0x82,
    WIRE_OK = 0x83,
    WIRE_REFUSED = 0x84,
    WIRE_WITH_VIEW = 0x100, /* added to the kind of a reply whose first field is its view */
};

/* Bytes that have another owner. */
struct wire_bytes {
    const void *at;
    size_t size;
};

/* A reply whose fields have been checked to be inside it. */
struct wire_reply {
    enum wire_kind kind;
    unsigned char *body; /* allocated; the fields */
    size_t size, next;
    struct wire_bytes note; /* the part of an index's hit that is counted; it is inside the reply */
    struct wire_bytes view; /* what this process has to see, see wire_confirm(); inside the reply too */
    uint64_t environment; /* the digest of the question's; 0 if not known */
    uint64_t looked; /* of a row's part: differs whenever a file that it depends on was changed; 0 of all else */
};

/* Read GPUCACHE_RUN_SOCKET and GPUCACHE_RUN_TIMEOUT_MS, or index.h's variables, once. */
void wire_begin(void);

/* When that was, in nanoseconds since 1970: a compiler has read none of its files before. 0 before that. */
uint64_t wire_begun_ns(void);

/* Set it, for a library that asks no server. */
void wire_begun_at(uint64_t ns);

/* Whether the server or the index may be asked: it exists, and nothing has failed yet. */
int wire_asks(void);

/* Whether a build that is not served has to fail: GPUCACHE_REQUIRE is set, and there is or was a server or index to ask. */
int wire_requires(void);

/* The log of such a build: the text of a reply of this kind, else that no server answered. To be freed. */
char *wire_refusal(struct wire_reply *reply);

/* Make a reply that refuses a build; always 1. */
int wire_refuse(struct wire_reply *reply, const char *why);

/* Whether an index of roots is searched before the server is asked. */
int wire_has_roots(void);

/* Stop asking, after a sound reply that makes no sense. */
void wire_stop(void);

/* Whether this process sees the files that the server read for a reply, and has loaded the compiler that lies there:
   conditions as in an index; of a miss also whether its environment is still the question's. Else the server is told,
   which keeps nothing of the build with this token. Of a hit wire_ask() confirms it; of a miss its caller does, after
   the compile, when all libraries of the compiler are loaded. */
int wire_confirm(enum wire_kind asked, const struct wire_reply *reply, struct wire_bytes token);

/* Ask, and wait for the reply: 1, or 0 if there is none. The fields are sent without a copy; a first one that is NULL
   becomes the text of which files this thread sees. A reply must be
   given to wire_done(). A request above the limit is not sent, which is not a failure. */
int wire_ask(enum wire_kind kind, struct wire_bytes *fields, size_t count, struct wire_reply *reply);

/* The same, without a search of the index. */
int wire_ask_server(enum wire_kind kind, struct wire_bytes *fields, size_t count, struct wire_reply *reply);

/* Write a word into the file next to the socket, for which no server has to be started; else send it. */
void wire_note(const char *word);

/* The first character of a token that an index gave for a compiler that goes on at launches. The digest of the question
   and the local sizes that its entry is compiled for follow, with blanks between them: launches with other sizes are
   noted, and the server is told nothing. */
enum { WIRE_OF_INDEX = '@' };

/* The same of a hit that an index gave, for which a program waited since a moment of wire_now(). Of other replies
   nothing is written: the server knows of them. */
void wire_count(const struct wire_reply *reply, uint64_t since_ns, int is_late);
uint64_t wire_now(void);

/* Send a message, and wait for the reply only if asked to; the reply itself says nothing. */
void wire_tell(enum wire_kind kind, const struct wire_bytes *fields, size_t count, int waits);

/* The next field of a reply about a build that missed. A program that has to wait may change the headers of
   the build as soon as it goes on, and the server reads them again before it replies. */
enum wire_wanted { WIRE_NOT_WANTED, WIRE_WANTED, WIRE_WANTED_AND_WAITS };
enum wire_wanted wire_next_wanted(struct wire_reply *reply);

/* Whether the fields fill a reply exactly, so that reading them needs no further care. */
int wire_is_sound(const struct wire_reply *reply);

/* The next field of a reply: 1, or 0 after the last. It is inside the reply. */
int wire_next(struct wire_reply *reply, struct wire_bytes *field);

/* Write a field of a reply; without its bytes, which then follow. Returns where they end or begin. */
unsigned char *wire_put(unsigned char *to, const void *bytes, size_t size);

void wire_done(struct wire_reply *reply);

struct wire_bytes wire_text(const char *text); /* NULL is empty */
struct wire_bytes wire_number(uint64_t number, char text[WIRE_NUMBER_SIZE]);

/* The environment as the program has it now, each variable ended by NUL; to be freed; NULL without memory.
 * For a variable that had another value when this library was loaded NAME@loaded has that one, empty for none. */
struct wire_bytes wire_environment(void);

#endif
