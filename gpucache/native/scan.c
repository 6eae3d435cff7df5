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
    uint32_t frame, options, place, program;       /* sizes of the first parts of a head; 0 if it is whole */
    uint64_t compile_ns, created_ns;               /* of a head in parts */
    uint32_t head, payload;                        /* sizes; no head if the entry is in doubt */
    unsigned char sum[32];                         /* SHA-256 of the payload, of an entry that was checked */
    char ptx[8];                                   /* such as 90a, if its payload is PTX and plainly sound */
};

/* The end of a JSON text as gpucache writes it, or NULL; with frame, also of one with an escape, and otherwise its
   length and bytes are put there as in a key (gpucache/keys.py). */
static const char *text(const char *at, const char *end, unsigned char **frame) {
    const char *begin = at;
    if (!at || at >= end || *at++ != '"') return NULL;
    begin++;
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

/* A list of texts. */
static const char *texts(const char *at, const char *end) {
    const char *next = literal(at, end, "[]");
    if (next) return next;
    for (at = literal(at, end, "["); (at = text(at, end, NULL)); at = next)
        if (!(next = literal(at, end, ","))) return literal(at, end, "]");
    return NULL;
}

static const char *flag(const char *at, const char *end) {
    const char *next = literal(at, end, "true");
    return next ? next : literal(at, end, "false");
}

static const char *number(const char *at, const char *end, uint64_t *value) {
    const char *begin = at;
    if (!at) return NULL;
    for (*value = 0; at < end && at - begin < 19 && *at >= '0' && *at <= '9'; at++)
        *value = *value * 10 + (uint64_t)(*at - '0');
    return at == begin || (*begin == '0' && at - begin > 1) || *value > INT64_MAX ? NULL : at;
}

/* Sort a head into parts: a frame, which many entries share and in which the other values are empty, then those:
   options, place, program and the SHA-256 of the payload. A head with anything unusual stays as it is. */
static void take_apart(char *head, struct seen *seen) {
    static const char *const empty[] = {"0", "0", "[]", "\"\"", "\"\"", "\"\""};
    struct {
        const char *at, *end;
    } cut[6];
    const char *at, *end = head + seen->head;
    char made[FRONT], *into = made;
    at = text(literal(head, end, "{\"artifact_kind\":"), end, NULL);
    at = text(literal(at, end, ",\"checks\":"), end, NULL);
    at = cut[0].end = number(cut[0].at = literal(at, end, ",\"compile_ns\":"), end, &seen->compile_ns);
    at = cut[1].end = number(cut[1].at = literal(at, end, ",\"created_ns\":"), end, &seen->created_ns);
    at = flag(literal(at, end, ",\"failures\":[],\"has_log\":"), end);
    at = text(literal(at, end, ",\"language\":"), end, NULL);
    at = flag(literal(at, end, ",\"local_sizes\":[],\"located\":"), end);
    at = cut[2].end = texts(cut[2].at = literal(at, end, ",\"lowered_names\":{},\"options\":"), end);
    at = cut[3].end = text(cut[3].at = literal(at, end, ",\"payload_sha256\":"), end, NULL);
    at = cut[4].end = text(cut[4].at = literal(at, end, ",\"place\":"), end, NULL);
    at = cut[5].end = text(cut[5].at = literal(at, end, ",\"program\":"), end, NULL);
    if (!literal(at, end, ",\"target\":") || seen->head > sizeof made || cut[3].end - cut[3].at != 64 + 2) return;
    if (cut[0].end - cut[0].at + cut[1].end - cut[1].at < 4) return; /* its parts would be longer than the head */
    at = head;
    for (int i = 0; i < 6; at = cut[i++].end) {
        if (i > 2 && memchr(cut[i].at, '\\', (size_t)(cut[i].end - cut[i].at))) return;
        into = mempcpy(into, at, (size_t)(cut[i].at - at));
        into = mempcpy(into, empty[i], strlen(empty[i]));
    }
    into = mempcpy(into, at, (size_t)(end - at));
    seen->frame = (uint32_t)(into - made);
    seen->options = (uint32_t)(cut[2].end - cut[2].at);
    seen->place = (uint32_t)(cut[4].end - cut[4].at) - 2;
    seen->program = (uint32_t)(cut[5].end - cut[5].at) - 2;
    into = mempcpy(into, cut[2].at, seen->options);
    into = mempcpy(into, cut[4].at + 1, seen->place);
    into = mempcpy(into, cut[5].at + 1, seen->program);
    into = mempcpy(into, cut[3].at + 1, 64);
    memcpy(head, made, (size_t)(into - made));
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

static int is_space(char one) { return one == ' ' || (one >= '\t' && one <= '\r'); }

/* The next comment of PTX, or the end. */
static const char *comment(const char *at, const char *end) {
    while (at < end && (at = memchr(at, '/', (size_t)(end - at))) && !literal(at, end, "//")) at++;
    return at ? at : end;
}

/* Behind white space and comments, all of which end. */
static const char *blank(const char *at, const char *end) {
    while (at && at < end && (is_space(*at) || literal(at, end, "//")))
        at = is_space(*at) ? at + 1 : memchr(at, '\n', (size_t)(end - at));
    return at;
}

static const char *digits(const char *at, const char *end, int most) {
    const char *begin = at;
    while (at && at < end && at - begin < most && *at >= '0' && *at <= '9') at++;
    return at == begin ? NULL : at;
}

/* Note the architecture of PTX that is whole by the rules of gpucache/payload/ptx.py, has neither strings nor block
   comments, and ends with a statement or a block. */
static void read_ptx(const char *at, size_t size, char architecture[8]) {
    static const signed char turn[256] = {['{'] = 1, ['('] = 1, ['}'] = -1, [')'] = -1};
    const char *end = at + size - (size && !at[size - 1]), *begin = at, *name, *stop;
    int64_t open = 0;
    char last = 0;
    if (!(at = literal(blank(at, end), end, ".version")) || at >= end || !is_space(*at)) return;
    while (at < end && is_space(*at)) at++;
    at = digits(literal(digits(at, end, 3), end, "."), end, 3);
    if (!at || at >= end || !is_space(*at) || memchr(begin, 0, (size_t)(end - begin))) return;
    if (memchr(begin = at, '"', (size_t)(end - at)) || memchr(at, '*', (size_t)(end - at))) return;
    if (!(at = literal(blank(at, end), end, ".target")) || at >= end || !is_space(*at)) return;
    while (at < end && is_space(*at)) at++;
    if (!(name = literal(at, end, "sm_")) && !(name = literal(at, end, "compute_"))) return;
    if (!(at = digits(name, end, 4))) return;
    at += at < end && *at >= 'a' && *at <= 'z';
    if (at >= end || (!is_space(*at) && *at != ',' && *at != '/')) return;
    for (const char *from = begin; from < end; from = stop) {
        const char *code = stop = comment(from, end);
        for (const char *one = from; one < code; one++) open += turn[(unsigned char)*one];
        while (code > from && is_space(code[-1])) code--;
        if (code > from) last = code[-1];
        if (stop < end && !(stop = memchr(stop, '\n', (size_t)(end - stop)))) stop = end;
    }
    if (!open && (last == ';' || last == '}')) memcpy(architecture, name, (size_t)(at - name));
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
        read_ptx((char *)bytes + is.at, is.payload, seen->ptx);
    }
    seen->inode = status.st_ino;
    seen->size = size;
    seen->mtime_ns = (uint64_t)((int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
    seen->allocated = (uint64_t)status.st_blocks * 512;
    seen->head = (uint32_t)is.head;
    seen->payload = (uint32_t)is.payload;
    take_apart((char *)bytes + ENTRY_HEADER, seen);
    return whole ? size : ENTRY_HEADER + is.head;
}

/* Look at entries of an open directory, whose names follow each other, as many as some room has place for; returns
   their number. */
EXPORTED size_t gpucache_look_at(int folder, const char *names, size_t count, int whole, struct seen *seen,
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
