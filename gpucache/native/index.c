#define _GNU_SOURCE
#include "index.h"

#include "entries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "GPCINDEX"
#define VERSION 5
#define HEADER 32 /* the magic, the version, the number of rows, the size of the file, zero */
#define ROW 32    /* the digests of the source and of the question, the place and the size of the record */
#define ROWS_CAP 126   /* of one file, so that its front has 4 KiB: gpucache/store/rows.py has the same number */
#define FRONT (HEADER + ROWS_CAP * ROW)
#define SMALL "v1/records.row" /* the small rows of many questions */
#define ROWS_BYTES_CAP (2ull * WIRE_MAX_BYTES)
#define TOLD_CAP 4     /* the most that are read to report why nothing was found */
#define NAMES_CAP 8192 /* the most files that are looked at for these */
#define DIGEST 32
#define REFERENCES_CAP 128
#define REFERENCE 56 /* the key, the sum of the description, when the entry was made */
#define TITLE_SIZE 100
#define BLANKS " \t\r\n" /* not by sscanf, which would need a new glibc if compiled with one */
#define TAIL 80           /* of a longer source: it may have the part that a program makes up for each run */
#define MADE_UP "pyopencl_defeat_cache_"

enum { AT_OPTIONS = 3, AT_SOURCE = 4, AT_NAME = 5, AT_NVRTC_SOURCE = 6 };

/* The roots; the directory of this process at the start. */
static char roots[4 * PATH_MAX], start[PATH_MAX];
static int tells, may_write, is_layer; /* a layer's roots have no server behind them, and none of them is the user's own */

int is_true(const char *value) {
    return value && (!strcmp(value, "1") || !strcasecmp(value, "true") || !strcasecmp(value, "yes") ||
                     !strcasecmp(value, "on"));
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...);

/* Warn about a variable whose value is not yes or no, which counts as no. */
static void check_flag(const char *variable) {
    const char *value = secure_getenv(variable);
    if (!value || !*value || is_true(value) || !strcmp(value, "0") || !strcasecmp(value, "false") ||
        !strcasecmp(value, "no") || !strcasecmp(value, "off"))
        return;
    say("%s=%.100s is not yes or no; set it to 1 or 0", variable, value);
}

void index_begin_anywhere(void) {
    if (!*start && !getcwd(start, sizeof start)) *start = 0;
}

/* Say which values of a layer's variables are wrong, and whether each hit and each miss is told. */
static void begin_layer(const char *all) {
    static const char *const flags[] = {"GPUCACHE_DISABLE", "GPUCACHE_REQUIRE", "GPUCACHE_LAYER_TELL"};
    const char *level = secure_getenv("GPUCACHE_LOG");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) check_flag(flags[i]);
    if (*all != '/') say("GPUCACHE_LAYER=%.300s is not an absolute path, so it is not read", all);
    if (level && *level && strcasecmp(level, "info") && strcasecmp(level, "debug") && strcasecmp(level, "warning") &&
        strcasecmp(level, "error") && strcasecmp(level, "critical"))
        say("GPUCACHE_LOG=%.100s is not a level; set it to debug, info or warning", level);
    tells = is_true(secure_getenv("GPUCACHE_LAYER_TELL")) ||
            (level && (!strcasecmp(level, "info") || !strcasecmp(level, "debug")));
}

/* Two threads may do this at once: each writes the same values, and nothing else meanwhile. */
int index_begin(int of_layer) {
    const char *all = secure_getenv(of_layer ? "GPUCACHE_LAYER" : "GPUCACHE_RUN_ROOTS");
    if (of_layer && all && *all) begin_layer(all);
    if (!all || !*all || strlen(all) >= sizeof roots || is_true(secure_getenv("GPUCACHE_DISABLE"))) return 0;
    if (of_layer && *all != '/') return 0;
    strcpy(roots, all);
    is_layer = of_layer;
    may_write = !of_layer && !is_true(secure_getenv("GPUCACHE_READ_ONLY"));
    index_begin_anywhere();
    return 1;
}

/* ---- messages ---- */

/* A line on standard error, unless its reader has gone: the signal would end the program. */
static void say(const char *format, ...) {
    char line[PATH_MAX + WHY_SIZE] = "gpucache: ";
    struct pollfd error = {.fd = 2, .events = POLLOUT};
    if (poll(&error, 1, 0) != 1 || error.revents != POLLOUT) return;
    size_t used = strlen(line);
    va_list values;
    va_start(values, format);
    int more = vsnprintf(line + used, sizeof line - used - 1, format, values);
    va_end(values);
    if (more < 0) return;
    used = used + (size_t)more < sizeof line - 1 ? used + (size_t)more : sizeof line - 2;
    for (size_t i = 0; i < used; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) line[i] = ' ';
    line[used] = '\n';
    if (write(2, line, used + 1) < 0) return;
}

#define tell(...) (tells ? say(__VA_ARGS__) : (void)0)

/* ---- bytes ---- */

static uint32_t half_at(const void *bytes) {
    const unsigned char *at = bytes;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The constants and the order of steps are those of XXH64's specification. */
#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }
static uint64_t mixed(uint64_t sum, uint64_t lane) { return turned(sum + lane * P2, 31) * P1; }

uint64_t digest(const void *bytes, size_t size, uint64_t seed) {
    const unsigned char *at = bytes, *end = at + size;
    uint64_t sum = seed + P5, sums[] = {seed + P1 + P2, seed + P2, seed, seed - P1};
    if (size >= 32) {
        for (; end - at >= 32; at += 32)
            for (int i = 0; i < 4; i++) sums[i] = mixed(sums[i], number_at(at + 8 * i));
        sum = turned(sums[0], 1) + turned(sums[1], 7) + turned(sums[2], 12) + turned(sums[3], 18);
        for (int i = 0; i < 4; i++) sum = (sum ^ mixed(0, sums[i])) * P1 + P4;
    }
    sum += size;
    for (; end - at >= 8; at += 8) sum = turned(sum ^ mixed(0, number_at(at)), 27) * P1 + P4;
    if (end - at >= 4) {
        sum = turned(sum ^ half_at(at) * P1, 23) * P2 + P3;
        at += 4;
    }
    for (; at < end; at++) sum = turned(sum ^ *at * P5, 11) * P1;
    sum = (sum ^ sum >> 33) * P2;
    sum = (sum ^ sum >> 29) * P3;
    return sum ^ sum >> 32;
}

int number_in(struct wire_bytes field, uint64_t *number) {
    if (!field.size || field.size > 19) return 0;
    *number = 0;
    for (size_t i = 0; i < field.size; i++) {
        unsigned digit = ((const unsigned char *)field.at)[i] - '0';
        if (digit > 9) return 0;
        *number = *number * 10 + digit;
    }
    return 1;
}

int next_number(struct wire_reply *record, uint64_t *number) {
    struct wire_bytes field;
    return wire_next(record, &field) && number_in(field, number);
}

/* ---- the file ---- */

struct index {
    int file; /* open, and what it begins with */
    unsigned char front[FRONT];
    uint64_t size, rows;
    struct roots roots; /* of the entries that its records refer to; its own is open */
    int may_write, is_own; /* stamps of files are believed in the user's own root alone */
};

/* Open a file of rows: 1, or 0, and why not if it is there. */
static int open_rows(struct index *index, const char *path, char why[WHY_SIZE]) {
    struct stat status;
    index->file = open_below(index->roots.fd, path, &status);
    if (index->file < 0) return 0;
    uint64_t size = index->size = (uint64_t)status.st_size;
    int sound = size >= HEADER && size <= ROWS_BYTES_CAP && read_at(index->file, index->front, size < FRONT ? size : FRONT, 0);
    sound = sound && !memcmp(index->front, MAGIC, 8) && half_at(index->front + 8) == VERSION;
    index->rows = sound ? half_at(index->front + 12) : 0;
    if (sound && number_at(index->front + 16) == size && index->rows <= ROWS_CAP && HEADER + index->rows * ROW <= size) return 1;
    snprintf(why, WHY_SIZE, "the row %.40s is damaged or has another version; export it again", path);
    close(index->file);
    return 0;
}

/* ---- a question ---- */

/* Whether a field is compared: process, directory, environment and the library's place are conditions. */
static int is_compared(const struct question *question, size_t field) {
    if (field <= AT_ENVIRONMENT) return 0;
    if (question->kind == WIRE_COMPILE) return field != AT_NVRTC;
    return field < AT_DEVICES || (field - AT_DEVICES) % DEVICE_FIELDS;
}

/* The digests by which a record is found, without the parts that a program may make up for each run: a
   source's tail, if it has PyOpenCL's mark, and the source's name for NVRTC. */
static void find_digests(const struct question *question, uint64_t *of_source, uint64_t *of_question) {
    size_t source = question->kind == WIRE_COMPILE ? AT_NVRTC_SOURCE : AT_SOURCE;
    uint64_t all = question->kind;
    *of_source = 0;
    for (size_t i = 0; i < question->count; i++) {
        struct wire_bytes field = question->fields[i];
        if (!field.size) field.at = "";
        char digits[WIRE_NUMBER_SIZE];
        if (!is_compared(question, i)) continue;
        struct wire_bytes size = wire_number(field.size, digits);
        all = digest(size.at, size.size, all);
        if (question->kind == WIRE_COMPILE && i == AT_NAME) continue;
        if (i == source) {
            size_t tail = field.size > TAIL ? TAIL : 0;
            const char *from = (const char *)field.at + field.size - tail;
            *of_source = digest(field.at, field.size - tail, question->kind);
            if (memmem(from, tail, MADE_UP, strlen(MADE_UP))) field.size -= tail;
        }
        all = digest(field.at, field.size, all);
    }
    *of_question = all;
}

/* A stretch of a field that is made up for each run, and its places in the answer, four bytes each. One of no size is a
   whole field, which ends there and whose SHA-256 it has. */
struct hole {
    uint64_t field, at, size;
    struct wire_bytes places;
};

static int next_hole(struct wire_reply *record, struct hole *hole) {
    return next_number(record, &hole->field) && next_number(record, &hole->at) && next_number(record, &hole->size) &&
           wire_next(record, &hole->places);
}

static int is_made_up(const unsigned char *at, size_t size) {
    for (; size; at++, size--)
        if (!(*at >= 'a' && *at <= 'z') && !(*at >= '0' && *at <= '9') && *at != '_') return 0;
    return 1;
}

/* Whether a field is the one that a hole has the digest of, which was made with underscores in the other holes. */
static int is_of_digest(struct wire_bytes field, const struct hole *whole, struct wire_reply holes) {
    unsigned char sum[DIGEST], *blank = NULL;
    struct hole hole;
    uint64_t left;
    int same = whole->at == field.size && next_number(&holes, &left);
    for (; same && left && next_hole(&holes, &hole); left--) {
        if (hole.field != whole->field || !hole.size) continue;
        same = hole.at <= field.size && hole.size <= field.size - hole.at &&
               is_made_up((const unsigned char *)field.at + hole.at, hole.size);
        if (same && !blank && (blank = malloc(field.size))) memcpy(blank, field.at, field.size);
        same = same && blank;
        if (same) memset(blank + hole.at, '_', hole.size);
    }
    if (same) sha256(blank ? blank : field.at, field.size, sum);
    free(blank);
    return same && !memcmp(sum, whole->places.at, DIGEST);
}

/* Names of the fields, for a field that differs. */
static void describe_field(const struct question *question, size_t field, struct wire_bytes was, char why[WHY_SIZE]) {
    static const char *const facts[] = {"platform name", "platform vendor", "platform version", "device name",
                                        "device vendor", "device version", "driver version"};
    struct wire_bytes is = question->fields[field];
    const char *what = "source";
    if (question->kind != WIRE_COMPILE && field >= AT_DEVICES) what = facts[(field - AT_DEVICES) % DEVICE_FIELDS - 1];
    if (question->kind != WIRE_COMPILE && field == AT_OPTIONS) what = "build options";
    if (question->kind == WIRE_COMPILE && field == AT_OPTIONS) what = "version of NVRTC or hipRTC";
    if (question->kind == WIRE_COMPILE && field == AT_NAME) what = "file name";
    if (question->kind == WIRE_COMPILE && field > AT_NVRTC_SOURCE) what = "an option, a header or a name expression";
    if (is.size + was.size > 300)
        snprintf(why, WHY_SIZE, "%s: not as stored", what);
    else
        snprintf(why, WHY_SIZE, "%s: now '%.*s', stored '%.*s'", what, (int)is.size, (const char *)is.at,
                 (int)was.size, (const char *)was.at);
}

/* Whether a record is of this question, each byte compared except in holes, which come first. The record that
   agrees the longest gives the difference to report. */
static int is_same(const struct question *question, struct wire_reply *record, size_t *longest, char why[WHY_SIZE]) {
    uint64_t holes, count;
    struct wire_bytes was;
    struct wire_reply at_holes = *record;
    if (!next_number(record, &holes)) return 0;
    struct hole hole = {0}, whole = {0};
    for (uint64_t i = 0; i < holes; i++) {
        if (!next_hole(record, &hole)) return 0;
        if (!hole.size && hole.places.size == DIGEST) whole = hole;
    }
    if (!next_number(record, &count)) return 0;
    if (count != question->count) {
        if (!*longest)
            snprintf(why, WHY_SIZE, "devices, headers or options: more or fewer than stored");
        return 0;
    }
    for (size_t i = 0; i < question->count; i++) {
        if (!wire_next(record, &was)) return 0;
        if (!is_compared(question, i)) continue;
        if (whole.places.size && i == whole.field) {
            if (is_of_digest(question->fields[i], &whole, at_holes)) continue;
            if (i > *longest) snprintf(why, WHY_SIZE, "source: not as stored");
            if (i > *longest) *longest = i;
            return 0;
        }
        const unsigned char *then = was.at, *now = question->fields[i].at;
        size_t size = was.size, from = 0;
        int same = size == question->fields[i].size;
        struct wire_reply cursor = at_holes;
        next_number(&cursor, &holes);
        for (; same && holes && next_hole(&cursor, &hole); holes--) {
            if (hole.field != i) continue;
            if (hole.at < from || hole.at > size || !hole.size || hole.size > size - hole.at) return 0;
            same = !memcmp(then + from, now + from, hole.at - from) && is_made_up(now + hole.at, hole.size);
            from = hole.at + hole.size;
        }
        if (same && (from == size || !memcmp(then + from, now + from, size - from))) continue;
        if (i > *longest) describe_field(question, i, was, why);
        if (i > *longest) *longest = i;
        return 0;
    }
    return 1;
}

/* Put this run's made-up parts into the answer, which is the rest of the record. */
static int fill_holes(const struct question *question, struct wire_reply *at_holes, struct wire_reply *answer) {
    uint64_t holes;
    struct hole hole;
    if (!next_number(at_holes, &holes)) return 0;
    for (; holes; holes--) {
        if (!next_hole(at_holes, &hole) || hole.places.size % 4) return 0;
        if (!hole.size) continue;
        if (hole.field >= question->count || !is_compared(question, hole.field)) return 0; /* this field was not compared */
        const unsigned char *made_up = (const unsigned char *)question->fields[hole.field].at + hole.at;
        for (size_t i = 0; i < hole.places.size; i += 4) {
            size_t at = half_at((const unsigned char *)hole.places.at + i);
            if (at > answer->size - answer->next || hole.size > answer->size - answer->next - at) return 0;
            memcpy(answer->body + answer->next + at, made_up, hole.size);
        }
    }
    return wire_is_sound(answer);
}

/* The references of a record, opened; how many, or -1. */
static int open_references(const struct index *index, struct wire_reply *record, struct entry *entries,
                           uint64_t *places) {
    uint64_t count;
    int opened = 0;
    struct wire_bytes field;
    if (!next_number(record, &count) || count > REFERENCES_CAP) return -1;
    for (; (uint64_t)opened < count; opened++) {
        struct reference one = {.is_key = 0};
        if (!next_number(record, &places[opened]) || !wire_next(record, &field) || field.size != REFERENCE) break;
        memcpy(one.key, field.at, sizeof one.key);
        memcpy(one.sum, (const char *)field.at + sizeof one.key, sizeof one.sum);
        one.created_ns = number_at((const char *)field.at + sizeof one.key + sizeof one.sum);
        if (!entry_open(&index->roots, &one, &entries[opened])) break;
    }
    if ((uint64_t)opened == count) return opened;
    while (opened) entry_close(&entries[--opened]);
    return -1;
}

/* The answer of a record, with the payloads that it refers to in their places; one without any stays in its
   record. */
static int make_answer(const struct index *index, struct wire_reply *record, struct wire_bytes note,
                       struct wire_reply *reply) {
    struct entry entries[REFERENCES_CAP];
    uint64_t places[REFERENCES_CAP];
    int opened = open_references(index, record, entries, places), next = 0;
    size_t size = record->size - record->next + 4 + note.size;
    struct wire_bytes field;
    *reply = *record;
    if (opened <= 0) return !opened;
    for (int i = 0; i < opened; i++) size += entries[i].size;
    unsigned char *body = size <= WIRE_MAX_BYTES ? malloc(size) : NULL, *to = body;
    int sound = body != NULL;
    if (sound) to = wire_put(to, note.at, note.size);
    for (uint64_t at = 0; sound && wire_next(record, &field); at++) {
        if (next == opened || places[next] != at) {
            to = wire_put(to, field.at, field.size);
            continue;
        }
        size = entries[next].size;
        to = wire_put(to, NULL, size);
        sound = !field.size && entry_read(&entries[next++], to, index->may_write);
        to += size;
    }
    for (int i = sound ? next : 0; i < opened; i++) entry_close(&entries[i]);
    *reply = (struct wire_reply){.kind = WIRE_HIT, .body = body, .size = (size_t)(to - body)};
    if (sound && next == opened && wire_next(reply, &field)) {
        if (!is_layer) reply->note = field; /* else nobody counts */
        return 1;
    }
    free(body);
    return 0;
}

/* Read the record of a row, up to its title, its note and its stamps. */
static int read_record(const struct index *index, const unsigned char *row, struct wire_reply *record,
                       struct wire_bytes *title, struct wire_bytes *note, struct wire_bytes *stamps) {
    uint64_t from = number_at(row + 16), length = number_at(row + 24);
    *record = (struct wire_reply){.kind = WIRE_PASS};
    if (length < 8 || length > WIRE_MAX_BYTES || from > index->size || length > index->size - from) return 0;
    *record = (struct wire_reply){.kind = WIRE_HIT, .size = length - 8, .body = malloc(length)};
    unsigned char sum[8];
    int is_read = record->body != NULL;
    if (is_read && from + length <= FRONT) {
        memcpy(sum, index->front + from, sizeof sum);
        memcpy(record->body, index->front + from + sizeof sum, length - sizeof sum);
    } else if (is_read && (is_read = read_at(index->file, record->body, length, from))) {
        memcpy(sum, record->body, sizeof sum);
        memmove(record->body, record->body + sizeof sum, length - sizeof sum);
    }
    return is_read && digest(record->body, length - sizeof sum, 0) == number_at(sum) &&
           wire_is_sound(record) && wire_next(record, title) && wire_next(record, note) && wire_next(record, stamps);
}

/* Read a record, and answer from it if it is of this question and everything is unchanged. */
static int try_record(const struct question *question, const struct index *index, const unsigned char *row,
                      struct wire_reply *reply, size_t *longest, char why[WHY_SIZE]) {
    struct wire_bytes title = {0}, note = {0}, stamps = {0};
    struct wire_reply record, at_holes;
    uint64_t looked = 0, *look = question->kind == WIRE_PART && !is_layer ? &looked : NULL; /* a layer keeps nothing */
    if (!*longest) snprintf(why, WHY_SIZE, "its row is damaged");
    int sound = read_record(index, row, &record, &title, &note, &stamps);
    if (!index->is_own) stamps.size = 0;
    at_holes = record;
    sound = sound && is_same(question, &record, longest, why) && conditions_hold(question, &record, stamps, look, why);
    if (sound) snprintf(why, WHY_SIZE, "its stored result is missing or has changed");
    int answered = sound && make_answer(index, &record, note, reply);
    if (answered && !fill_holes(question, &at_holes, reply)) {
        if (reply->body != record.body) free(reply->body);
        answered = 0;
    }
    if (answered) tell("hit: %.*s", (int)(title.size < 200 ? title.size : 200), (const char *)title.at);
    if (!answered || reply->body != record.body) free(record.body);
    if (!answered) *reply = (struct wire_reply){.kind = WIRE_PASS};
    reply->looked = answered ? looked : 0;
    return answered;
}

/* The records of a file, one after another: 1 if one is of this question and answers it. */
static int search(const struct question *question, struct index *index, const char *path, uint64_t of_question,
                  struct wire_reply *reply, size_t *longest, char why[WHY_SIZE]) {
    int answered = 0;
    if (!open_rows(index, path, why)) return 0;
    const unsigned char *row = index->front + HEADER, *end = row + index->rows * ROW;
    for (; row < end && !answered; row += ROW)
        if (number_at(row + 8) == of_question) answered = try_record(question, index, row, reply, longest, why);
    close(index->file);
    return answered;
}

/* The differences to the rows of a file that are of this source, until so many are told. */
static void explain_by(const struct question *question, struct index *index, const char *path, uint64_t of_source,
                       int *told, size_t *longest, char why[WHY_SIZE]) {
    char unused[WHY_SIZE];
    struct wire_reply reply;
    if (!open_rows(index, path, unused)) return;
    const unsigned char *row = index->front + HEADER, *end = row + index->rows * ROW;
    for (; row < end && *told < TOLD_CAP; row += ROW) {
        if (number_at(row) != of_source) continue;
        ++*told;
        if (try_record(question, index, row, &reply, longest, why)) wire_done(&reply);
    }
    close(index->file);
}

/* Where no row is of this question: the difference to the nearest of a few that are of its source. */
static void explain(const struct question *question, const char *all, uint64_t of_source, char why[WHY_SIZE]) {
    struct index index = {.roots.all = ""};
    size_t longest = 0;
    int left = NAMES_CAP, told = 0;
    snprintf(why, WHY_SIZE, "its source is not in the layer");
    while (*all && told < TOLD_CAP) {
        int root = index.roots.fd = open_root(&all);
        if (root < 0) continue;
        explain_by(question, &index, SMALL, of_source, &told, &longest, why);
        int rows = openat(root, "v1/rows", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *folder = rows < 0 ? NULL : fdopendir(rows);
        if (!folder && rows >= 0) close(rows);
        for (struct dirent *entry; folder && told < TOLD_CAP && left-- && (entry = readdir(folder));) {
            char path[sizeof "v1/rows/" + NAME_MAX];
            snprintf(path, sizeof path, "v1/rows/%s", entry->d_name);
            if (*entry->d_name != '.') explain_by(question, &index, path, of_source, &told, &longest, why);
        }
        if (folder) closedir(folder);
        close(root);
    }
}

/* The name of a source: as passed to NVRTC, or its first kernel; its size if there is neither. */
static void name_source(const struct question *question, size_t source, char title[TITLE_SIZE]) {
    struct wire_bytes is = question->fields[source], given = question->fields[AT_NAME];
    int is_cuda = question->kind == WIRE_COMPILE;
    const char *mark = is_cuda ? "__global__" : "kernel", *at = is.at;
    snprintf(title, TITLE_SIZE, "%.*s", (int)(given.size < TITLE_SIZE ? given.size : TITLE_SIZE - 1),
             is_cuda && given.size ? (const char *)given.at : "");
    if (is_cuda && *title && strcmp(title, "default_program")) return;
    while (is.size && (at = memmem(at, is.size - (size_t)(at - (const char *)is.at), mark, strlen(mark)))) {
        char next[2 * TITLE_SIZE];
        at += strlen(mark);
        size_t left = is.size - (size_t)(at - (const char *)is.at);
        snprintf(next, sizeof next, "%.*s", (int)(left < sizeof next ? left : sizeof next - 1), at);
        const char *word = next + strspn(next, BLANKS);
        if (strncmp(word, "void", 4)) continue;
        word += 4 + strspn(word + 4, BLANKS);
        int size = (int)strcspn(word, BLANKS "(");
        snprintf(title, TITLE_SIZE, "%.*s", size, word);
        if (size) return;
    }
    snprintf(title, TITLE_SIZE, "a source of %zu bytes", is.size);
}

/* The answer of the roots, one after another; whether a row of this question is there, and why it does not answer. */
static int search_roots(const struct question *question, const char *all, int writable, int is_own, uint64_t of_question,
                        struct wire_reply *reply, char why[WHY_SIZE]) {
    struct index index = {.roots.all = all, .may_write = writable, .is_own = is_own};
    static atomic_int latest; /* whether the last answer was in a file of its own, which is looked for first */
    char path[sizeof "v1/rows/.row" + 16];
    const char *const paths[] = {SMALL, path};
    size_t longest = 0;
    int answered = 0, first = atomic_load(&latest);
    snprintf(path, sizeof path, "v1/rows/%016llx.row", (unsigned long long)of_question);
    for (const char *rest = all; *rest && !answered; index.is_own = 0) {
        index.roots.open = rest;
        int root = index.roots.fd = open_root(&rest);
        if (root < 0)
            snprintf(why, WHY_SIZE, "%.*s cannot be read, or is not this user's or root's alone",
                     (int)strcspn(index.roots.open, ":"), index.roots.open);
        for (int each = 0; root >= 0 && each < 2 && !answered; each++) {
            answered = search(question, &index, paths[first ^ each], of_question, reply, &longest, why);
            if (answered && each) atomic_store(&latest, first ^ each);
        }
        if (root >= 0) close(root);
    }
    return answered;
}

static int answer(const char *all, int writable, enum wire_kind kind, const struct wire_bytes *fields, size_t count,
                  struct wire_reply *reply) {
    struct question question = {kind, fields, count, start};
    size_t source = kind == WIRE_COMPILE ? AT_NVRTC_SOURCE : AT_SOURCE;
    char why[WHY_SIZE] = "";
    uint64_t of_source, of_question;
    int of_layer = is_layer && all == roots;
    int known = kind == WIRE_BUILD || kind == WIRE_COMPILE || kind == WIRE_PART || kind == WIRE_LINK;
    if (!known || count <= source) return 0;
    int kept = errno, required = of_layer && wire_requires();
    find_digests(&question, &of_source, &of_question);
    int answered = search_roots(&question, all, writable, !of_layer, of_question, reply, why);
    if (!answered && !*why && (tells || required)) explain(&question, all, of_source, why);
    if (!answered && tells) {
        char title[TITLE_SIZE];
        name_source(&question, source, title);
        tell("miss: %s: %s", title, why);
    }
    errno = kept;
    return answered || (required && wire_refuse(reply, why));
}

int index_answer(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *reply) {
    if (kind == WIRE_REJECTED && count > 1)
        tell("the driver refused a hit, with %.*s", (int)fields[1].size, (const char *)fields[1].at);
    return answer(roots, may_write, kind, fields, count, reply);
}

int index_answer_below(const char *all, int writable, enum wire_kind kind, const struct wire_bytes *fields,
                       size_t count, struct wire_reply *reply) {
    index_begin_anywhere();
    return *all && answer(all, writable, kind, fields, count, reply);
}

int index_meets(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *conditions,
                char why[WHY_SIZE]) {
    struct question question = {kind, fields, count, start};
    int kept = errno, meets = conditions_hold(&question, conditions, wire_text(NULL), NULL, why);
    errno = kept;
    return meets;
}
