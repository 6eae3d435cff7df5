/* Many entries of one directory in one call, for gpucache's own verbs (gpucache/store/together.py): their heads, or
   all of each of them checked. What is in doubt in any way is left to gpucache/store/scan.py, which has the reasons. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "entries.h"

#define EXPORTED __attribute__((visibility("default")))
#define NAME 68 /* <64 hex>.gpc */
#define FRONT (4u << 10) /* of an entry is read for its head */

struct seen {
    uint64_t inode, size, mtime_ns, allocated, at; /* where its bytes begin */
    uint32_t head, payload; /* sizes; no head if the entry is in doubt */
    unsigned char sum[32];  /* SHA-256 of the payload, of an entry that was checked */
};

/* The end of a JSON text as gpucache writes it, or NULL; with frame, also of one with an escape, and otherwise its
   length and bytes are put there as in a key (gpucache/keys.py). */
static const char *text(const char *at, const char *end, unsigned char **frame) {
    const char *begin = at + 1;
    if (at >= end || *at++ != '"') return NULL;
    for (; at < end && *at != '"'; at++) {
        if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e) return NULL;
        if (*at != '\\') continue;
        if (frame || ++at >= end || !memchr("\"\\/bfnrtu", *at, 9)) return NULL;
        if (*at == 'u' && (end - at < 5 || strspn(at + 1, "0123456789abcdef") < 4)) return NULL;
    }
    if (at >= end) return NULL;
    if (frame) {
        uint64_t size = (uint64_t)(at - begin);
        for (int i = 0; i < 8; i++) *(*frame)++ = (unsigned char)(size >> 8 * i);
        memcpy(*frame, begin, size);
        *frame += size;
    }
    return at + 1;
}

static const char *literal(const char *at, const char *end, const char *wanted) {
    size_t size = strlen(wanted);
    return at && (size_t)(end - at) >= size && !memcmp(at, wanted, size) ? at + size : NULL;
}

/* A list of pairs of texts. */
static const char *pairs(const char *at, const char *end, unsigned char **frame) {
    const char *next = literal(at, end, "[]");
    if (next || !(at = literal(at, end, "["))) return next;
    for (;; at = next) {
        if (!(at = literal(at, end, "[")) || !(at = text(at, end, frame))) return NULL;
        if (!(at = literal(at, end, ",")) || !(at = text(at, end, frame))) return NULL;
        if (!(at = literal(at, end, "]"))) return NULL;
        if (!(next = literal(at, end, ","))) return literal(at, end, "]");
    }
}

/* Whether a detail is as gpucache writes it, and its key fields make a key. */
static int is_of_key(const char *at, size_t size, const unsigned char *key) {
    static const char schema[] = "\16\0\0\0\0\0\0\0gpucache key 1";
    unsigned char *frames = malloc(sizeof schema + 3 * size), *frame = frames, made[32];
    const char *end = at + size;
    if (!frames) return 0;
    memcpy(frame, schema, sizeof schema - 1);
    frame += sizeof schema - 1;
    if ((at = literal(at, end, "{\"build_log\":"))) at = text(at, end, NULL);
    if ((at = literal(at, end, ",\"key_fields\":"))) at = pairs(at, end, &frame);
    if ((at = literal(at, end, ",\"provenance\":"))) at = pairs(at, end, NULL);
    if ((at = literal(at, end, ",\"tool_version\":"))) at = text(at, end, NULL);
    if ((at = literal(at, end, "}"))) sha256(frames, (size_t)(frame - frames), made);
    free(frames);
    return at == end && !memcmp(made, key, sizeof made);
}

/* Look at an entry, and put its first bytes, or all, to some room: how many, more than there are if it is too large,
   or 0 if it is in doubt. */
static uint64_t look(int fd, const char *name, int whole, struct seen *seen, unsigned char *bytes, uint64_t room) {
    static const char digits[] = "0123456789abcdef";
    struct stat status;
    struct lengths is;
    unsigned char key[32], sums[32], sum[16];
    if (!is_trusted(fd, &status) || !S_ISREG(status.st_mode)) return 0;
    uint64_t size = (uint64_t)status.st_size, wanted = whole || size < FRONT ? size : FRONT;
    if (size < ENTRY_HEADER || wanted > room) return size < ENTRY_HEADER ? 0 : wanted;
    if (!read_at(fd, bytes, wanted, 0) || !entry_lengths(bytes, size, &is) || ENTRY_HEADER + is.head > wanted) return 0;
    memcpy(key, bytes + 48, sizeof key);
    memcpy(sums, bytes + 80, sizeof sums);
    for (int i = 0; i < 32; i++)
        if (name[2 * i] != digits[key[i] >> 4] || name[2 * i + 1] != digits[key[i] & 15]) return 0;
    if (whole) {
        if (!entry_sum(bytes, &is, sum) || memcmp(sum, sums, 16)) return 0;
        xxh3(bytes + is.at, is.payload, sum);
        if (memcmp(sum, sums + 16, 16) || !is_of_key((char *)bytes + ENTRY_HEADER + is.head, is.detail, key)) return 0;
        sha256(bytes + is.at, is.payload, seen->sum);
    }
    seen->inode = status.st_ino;
    seen->size = size;
    seen->mtime_ns = (uint64_t)((int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
    seen->allocated = (uint64_t)status.st_blocks * 512;
    seen->head = (uint32_t)is.head;
    seen->payload = (uint32_t)is.payload;
    return whole ? size : ENTRY_HEADER + is.head;
}

/* Look at entries of an open directory, whose names follow each other, as many as some room has place for; returns
   their number. */
EXPORTED size_t gpucache_look(int folder, const char *names, size_t count, int whole, struct seen *seen,
                              unsigned char *bytes, size_t room) {
    uint64_t used = 0;
    size_t done = 0;
    for (; done < count; done++, names += NAME) {
        char name[NAME + 1] = {0};
        memcpy(name, names, NAME);
        seen[done] = (struct seen){.at = used};
        int fd = open_above(folder, name, O_NOFOLLOW);
        if (fd < 0) continue;
        uint64_t size = look(fd, name, whole, &seen[done], bytes + used, room - used);
        close(fd);
        if (size > room - used && used) break; /* which the next call has room for */
        if (size <= room - used) used += size;
    }
    return done;
}
