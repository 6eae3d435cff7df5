#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "filters.h"
#include "index.h"

#define USUAL_TIMEOUT_MS 5000
#define LONGEST_TIMEOUT_MS 600000
#define HEADER_SIZE 8 /* the length, the version and the kind */
#define FILES_SEEN_SIZE (7 * WIRE_NUMBER_SIZE)
#define NOTES "notes" /* the file next to the socket; gpucache/serve/listening.py reads it */
#define FILTERED "filtered\n"
#define NOTES_CAP (64 << 20)
#define LINE_CAP 4096
#define BATCH 32      /* fields sent by one system call */

extern char **environ;

/* The only state. Atomic and without a lock, so that a child of fork() finds it usable at any moment. */
enum { UNREAD, ASKING, READING, SILENT };
static atomic_int state = UNREAD;
static int stands; /* a server is named, whether or not it replies */
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static long timeout_ms = USUAL_TIMEOUT_MS;
static int has_roots; /* whether a question is looked up in an index before the server is asked */

/* Whether a note can be written: beyond its limit on the size of files the system ends a program. */
static int may_note(void) {
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur >= NOTES_CAP + LINE_CAP;
}

static void put_u32(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* The environment when the compiler was loaded, as it may have read variables then. */
static struct wire_bytes loaded;
static uint64_t begun_ns;

static struct wire_bytes copy_environment(void);

void wire_begin(void) {
    if (atomic_load(&state) != UNREAD) return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    begun_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    loaded = copy_environment();
    const char *path = secure_getenv("GPUCACHE_RUN_SOCKET");
    const char *limit = secure_getenv("GPUCACHE_RUN_TIMEOUT_MS");
    stands = path || secure_getenv("GPUCACHE_LAYER");
    if (!path || !*path || strlen(path) >= sizeof address.sun_path) {
        atomic_store(&state, !path && index_begin(1) ? READING : SILENT);
        return;
    }
    strcpy(address.sun_path, path);
    has_roots = index_begin(0);
    long given = limit ? strtol(limit, NULL, 10) : 0;
    if (given > 0 && given <= LONGEST_TIMEOUT_MS) timeout_ms = given;
    atomic_store(&state, ASKING);
}

uint64_t wire_begun_ns(void) { return begun_ns; }

void wire_begun_at(uint64_t ns) { begun_ns = ns; }

int wire_asks(void) {
    int now = atomic_load(&state);
    return now == ASKING || now == READING;
}

int wire_requires(void) { return stands && is_true(secure_getenv("GPUCACHE_REQUIRE")); }

char *wire_refusal(struct wire_reply *reply) {
    static const char begin[] = "GPUCACHE_REQUIRE is set, and this build missed: ";
    static const char unanswered[] = "no cache could be queried, or its answer came too late";
    static const char unasked[] = "gpucache does not serve such a build";
    struct wire_bytes why = wire_text(wire_asks() ? unasked : unanswered);
    if (reply && reply->kind == WIRE_REFUSED) wire_next(reply, &why);
    char *text = malloc(sizeof begin + why.size);
    if (!text) return NULL;
    memcpy(text, begin, sizeof begin - 1);
    memcpy(text + sizeof begin - 1, why.at, why.size);
    text[sizeof begin - 1 + why.size] = 0;
    return text;
}

int wire_refuse(struct wire_reply *reply, const char *why) {
    size_t size = strlen(why);
    *reply = (struct wire_reply){.kind = WIRE_REFUSED, .body = malloc(4 + size)};
    if (reply->body) {
        put_u32(reply->body, (uint32_t)size);
        memcpy(reply->body + 4, why, size);
        reply->size = 4 + size;
    }
    return 1;
}

int wire_has_roots(void) { return has_roots; }

void wire_stop(void) { atomic_store(&state, SILENT); }

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Let the next call on the socket wait until the deadline and no longer. A blocking socket with a time-out,
   because connect() of a local socket that does not block fails at once where the server is merely busy. */
static int limit_wait(int fd, int64_t deadline_us) {
    int64_t left = deadline_us - now_us();
    if (left <= 0) return 0; /* zero would mean forever */
    struct timeval wait = {.tv_sec = left / 1000000, .tv_usec = left % 1000000};
    return !setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) &&
           !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
}

/* A socket that is not descriptor 0, 1 or 2: where a program has closed those, its other threads may still
   write to them. */
static int open_socket(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || fd > 2) return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return higher;
}

/* Whether the server runs as the same user: no other user's binaries are loaded. */
static int is_ours(int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

static int connect_until(int fd, int64_t deadline_us) {
    do {
        if (!limit_wait(fd, deadline_us)) return 0;
        if (!connect(fd, (const struct sockaddr *)&address, sizeof address)) return is_ours(fd);
    } while (errno == EINTR);
    return 0;
}

static int send_all(int fd, struct iovec *parts, size_t count, int64_t deadline_us) {
    while (count) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        if (!limit_wait(fd, deadline_us)) return 0;
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return 0;
        size_t left = (size_t)sent;
        while (count && left >= parts->iov_len) {
            left -= parts->iov_len;
            parts++, count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return 1;
}

static int receive_all(int fd, unsigned char *at, size_t size, int64_t deadline_us) {
    while (size) {
        if (!limit_wait(fd, deadline_us)) return 0;
        ssize_t received = recv(fd, at, size, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) return 0;
        at += received;
        size -= (size_t)received;
    }
    return 1;
}

static uint32_t get_u32(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int send_request(int fd, enum wire_kind kind, const struct wire_bytes *fields, size_t count,
                        uint32_t size, int64_t deadline_us) {
    unsigned char header[HEADER_SIZE], lengths[BATCH][4];
    struct iovec parts[1 + 2 * BATCH];
    size_t used = 0;
    put_u32(header, size);
    put_u32(header + 4, WIRE_VERSION | (uint32_t)kind << 16);
    parts[used++] = (struct iovec){header, HEADER_SIZE};
    for (size_t i = 0; i < count; i++) {
        put_u32(lengths[i % BATCH], (uint32_t)fields[i].size);
        parts[used++] = (struct iovec){lengths[i % BATCH], 4};
        if (fields[i].size) parts[used++] = (struct iovec){(void *)fields[i].at, fields[i].size};
        if ((i + 1) % BATCH == 0) {
            if (!send_all(fd, parts, used, deadline_us)) return 0;
            used = 0;
        }
    }
    return send_all(fd, parts, used, deadline_us);
}

int wire_is_sound(const struct wire_reply *reply) {
    size_t at = 0;
    while (reply->size - at >= 4) {
        size_t length = get_u32(reply->body + at);
        at += 4;
        if (length > reply->size - at) return 0;
        at += length;
    }
    return at == reply->size;
}

static int receive_reply(int fd, struct wire_reply *reply, int64_t deadline_us) {
    unsigned char header[HEADER_SIZE];
    if (!receive_all(fd, header, HEADER_SIZE, deadline_us)) return 0;
    uint32_t size = get_u32(header), rest = get_u32(header + 4);
    if (size < 4 || size > WIRE_MAX_BYTES || (rest & 0xffff) != WIRE_VERSION) return 0;
    uint32_t kind = rest >> 16;
    *reply = (struct wire_reply){.kind = kind & ~(uint32_t)WIRE_WITH_VIEW, .size = size - 4, .body = malloc(size)};
    return reply->kind >= WIRE_PASS && reply->kind <= WIRE_REFUSED && reply->body &&
           receive_all(fd, reply->body, reply->size, deadline_us) && wire_is_sound(reply) &&
           (!(kind & WIRE_WITH_VIEW) || wire_next(reply, &reply->view));
}

/* Bytes that follow the first length of a request; 0 for more than a frame may have. */
static uint32_t request_size(const struct wire_bytes *fields, size_t count) {
    size_t size = 4;
    for (size_t i = 0; i < count; i++) {
        if (fields[i].size > WIRE_MAX_BYTES || (size += 4 + fields[i].size) > WIRE_MAX_BYTES) return 0;
    }
    return (uint32_t)size;
}

int wire_ask(enum wire_kind kind, struct wire_bytes *fields, size_t count, struct wire_reply *reply) {
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    if (wire_asks() && has_roots && index_answer(kind, fields, count, reply)) return 1;
    return wire_ask_server(kind, fields, count, reply);
}

/* One exchange with the server; without a reply only the request is sent, and nothing is waited for. */
static int exchange(enum wire_kind kind, const struct wire_bytes *fields, size_t count, struct wire_reply *reply) {
    int kept = errno;
    uint32_t size = request_size(fields, count);
    if (!size) return 0;
    int64_t deadline_us = now_us() + (int64_t)timeout_ms * 1000;
    int fd = open_socket();
    int done = fd >= 0 && connect_until(fd, deadline_us) && send_request(fd, kind, fields, count, size, deadline_us) &&
               (!reply || receive_reply(fd, reply, deadline_us));
    if (fd >= 0) close(fd);
    if (!done && reply) wire_done(reply);
    errno = kept;
    return done;
}

static int append_note(const char *line, size_t size) {
    char path[sizeof address.sun_path + sizeof NOTES];
    const char *slash = strrchr(address.sun_path, '/');
    if (!slash || !may_note()) return 0;
    int kept = errno;
    struct stat status;
    snprintf(path, sizeof path, "%.*s/" NOTES, (int)(slash - address.sun_path), address.sun_path);
    int fd = open_above(AT_FDCWD, path, O_WRONLY | O_APPEND | O_NOFOLLOW);
    int fits = fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
               status.st_size < NOTES_CAP;
    int written = fits && write(fd, line, size) == (ssize_t)size;
    if (fd >= 0) close(fd);
    errno = kept;
    return written;
}

/* The mount that the root directory is on; 0 before Linux 5.8, which does not report it. */
static uint64_t mount_of_root(void) {
    uint64_t told[32] = {0}; /* struct statx, which older headers lack */
    enum { MNT_ID = 0x1000, MNT_ID_AT = 18 };
#ifdef SYS_statx
    if (syscall(SYS_statx, AT_FDCWD, "/", 0, MNT_ID, told)) return 0;
#endif
    return (uint32_t)told[0] & MNT_ID ? told[MNT_ID_AT] : 0;
}

/* A number for the files that the thread may read: its user, groups and capabilities; 0 if unknown. */
static uint64_t rights(void) {
    static const char *const counted[] = {"Uid:", "Gid:", "Groups:", "CapEff:"};
    int fd = open_above(AT_FDCWD, "/proc/thread-self/status", 0);
    FILE *status = fd >= 0 ? fdopen(fd, "r") : NULL;
    char *line = NULL;
    size_t room = 0;
    uint64_t total = 0;
    while (status && getline(&line, &room, status) > 0)
        for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
            if (!strncmp(line, counted[i], strlen(counted[i])))
                for (const unsigned char *at = (unsigned char *)line; *at; at++) total = total * 31 + *at;
    free(line);
    if (status)
        fclose(status);
    else if (fd >= 0)
        close(fd);
    return total;
}

/* Which files the calling thread can see and read, as in gpucache/host/file_stamps.py; empty if unknown. */
static struct wire_bytes files_seen(char text[FILES_SEEN_SIZE]) {
    int kept = errno;
    struct stat files, users, root;
    uint64_t total = rights();
    *text = 0;
    if (total && !stat("/proc/thread-self/ns/mnt", &files) && !stat("/proc/thread-self/ns/user", &users) &&
        !stat("/", &root)) {
        unsigned long long numbers[] = {files.st_dev, files.st_ino, users.st_ino,    root.st_dev,
                                        root.st_ino,  total,        mount_of_root()};
        for (size_t i = 0, used = 0; i < sizeof numbers / sizeof *numbers; i++)
            used += (size_t)snprintf(text + used, FILES_SEEN_SIZE - used, i ? ":%llx" : "%llx", numbers[i]);
    }
    errno = kept;
    return wire_text(text);
}

int wire_ask_server(enum wire_kind kind, struct wire_bytes *fields, size_t count, struct wire_reply *reply) {
    static _Thread_local char seen[FILES_SEEN_SIZE];
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    if (!wire_asks() || !request_size(fields, count)) return 0;
    if (atomic_load(&state) == READING) return index_answer(kind, fields, count, reply);
    if (is_filtered()) {
        append_note(FILTERED, strlen(FILTERED));
        return 0;
    }
    if (count && !fields->at) *fields = files_seen(seen); /* an index needs none */
    if (!exchange(kind, fields, count, reply)) {
        wire_stop();
        return 0;
    }
    struct wire_reply token_at = *reply;
    struct wire_bytes token;
    if (reply->kind == WIRE_HIT && wire_next(&token_at, &token) && !wire_confirm(kind, reply, token)) wire_done(reply);
    if (count >= AT_DEVICES)
        reply->environment = digest(fields[AT_ENVIRONMENT].at, fields[AT_ENVIRONMENT].size, 'E') | 1;
    return 1;
}

/* Whether no variable has changed since the question of a reply: the compiler may have read it as it is now. */
static int same_environment(const struct wire_reply *reply) {
    if (!reply->environment) return 1;
    struct wire_bytes now = wire_environment();
    int same = now.at && (digest(now.at, now.size, 'E') | 1) == reply->environment;
    free((void *)now.at);
    return same;
}

int wire_confirm(enum wire_kind asked, const struct wire_reply *reply, struct wire_bytes token) {
    struct wire_bytes none[AT_DEVICES] = {{NULL, 0}}; /* a view has no other paths than absolute ones */
    struct question question = {asked, none, AT_DEVICES, ""};
    struct wire_reply view = {.body = (unsigned char *)reply->view.at, .size = reply->view.size};
    char why[WHY_SIZE] = "the reply is damaged";
    int kept = errno;
    int sees = !reply->view.at || (wire_is_sound(&view) && conditions_hold(&question, &view, wire_text(NULL), NULL, why));
    if (sees && !(sees = same_environment(reply))) snprintf(why, sizeof why, "its environment changed meanwhile");
    struct wire_bytes fields[] = {token, wire_text(why)};
    /* The reply to it is waited for, so that the result of the build comes later. */
    if (!sees) wire_tell(asked == WIRE_COMPILE ? WIRE_COMPILE_DOUBTED : WIRE_BUILD_DOUBTED, fields, 2, 1);
    errno = kept;
    return sees;
}

uint64_t wire_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Where the file cannot be written, as below a root that is mounted read-only, the server is told. */
static void write_note(const char *line, int size) {
    static atomic_int unheard;
    struct wire_bytes field = {line, (size_t)size};
    if (size <= 0 || size >= LINE_CAP || append_note(line, field.size) || atomic_load(&state) != ASKING) return;
    if (!atomic_load(&unheard) && !is_filtered() && !exchange(WIRE_NOTE, &field, 1, NULL)) atomic_store(&unheard, 1);
}

void wire_note(const char *word) {
    char line[LINE_CAP];
    write_note(line, snprintf(line, sizeof line, "%s\n", word));
}

void wire_count(const struct wire_reply *reply, uint64_t since_ns, int is_late) {
    char line[LINE_CAP];
    if (!reply->note.at) return;
    unsigned long long since = since_ns, took = wire_now() - since_ns;
    write_note(line, snprintf(line, sizeof line, "%s %llu %llu %.*s\n", is_late ? "late" : "hit", since, took,
                              (int)reply->note.size, (const char *)reply->note.at));
}

void wire_tell(enum wire_kind kind, const struct wire_bytes *fields, size_t count, int waits) {
    struct wire_reply reply = {.kind = WIRE_PASS};
    if (atomic_load(&state) != ASKING || is_filtered()) return;
    if (!exchange(kind, fields, count, waits ? &reply : NULL)) wire_stop();
    wire_done(&reply);
}

enum wire_wanted wire_next_wanted(struct wire_reply *reply) {
    struct wire_bytes field;
    if (reply->kind != WIRE_MISS || !wire_next(reply, &field) || field.size != 1) return WIRE_NOT_WANTED;
    return (enum wire_wanted)(*(const char *)field.at - '0');
}

int wire_next(struct wire_reply *reply, struct wire_bytes *field) {
    if (reply->next == reply->size) return 0;
    *field = (struct wire_bytes){reply->body + reply->next + 4, get_u32(reply->body + reply->next)};
    reply->next += 4 + field->size;
    return 1;
}

unsigned char *wire_put(unsigned char *to, const void *bytes, size_t size) {
    for (int i = 0; i < 4; i++) *to++ = (unsigned char)(size >> 8 * i);
    if (bytes && size) memcpy(to, bytes, size);
    return bytes ? to + size : to;
}

void wire_done(struct wire_reply *reply) {
    free(reply->body);
    *reply = (struct wire_reply){.kind = WIRE_PASS};
}

struct wire_bytes wire_text(const char *text) {
    return (struct wire_bytes){text, text ? strlen(text) : 0};
}

struct wire_bytes wire_number(uint64_t number, char text[WIRE_NUMBER_SIZE]) {
    snprintf(text, WIRE_NUMBER_SIZE, "%llu", (unsigned long long)number);
    return wire_text(text);
}

static struct wire_bytes copy_environment(void) {
    size_t size = 0, used = 0;
    for (char **each = environ; each && *each; each++) size += strlen(*each) + 1;
    char *copy = malloc(size + 1);
    for (char **each = environ; copy && each && *each; each++) {
        size_t length = strlen(*each) + 1;
        if (used + length > size) break; /* another thread has changed it meanwhile */
        memcpy(copy + used, *each, length);
        used += length;
    }
    return (struct wire_bytes){copy, used};
}

/* The value of the variable that an entry of an environment names; NULL if it is not set. */
static const char *value_of(struct wire_bytes environment, const char *entry) {
    const char *each = environment.at, *end = each + environment.size;
    size_t name = strcspn(entry, "=") + 1;
    for (; each < end; each += strlen(each) + 1)
        if (!strncmp(each, entry, name)) return each + name;
    return NULL;
}

/* Add NAME@loaded=VALUE for each variable of `some` with another value in `others`; how much was written. */
static size_t add_changes(char *to, struct wire_bytes some, struct wire_bytes others) {
    const char *each = some.at, *end = each + some.size;
    size_t used = 0;
    for (; each < end; each += strlen(each) + 1) {
        const char *before = value_of(loaded, each), *other = value_of(others, each);
        size_t name = strcspn(each, "=");
        if (!each[name] || (other && (others.at != loaded.at || !strcmp(other, each + name + 1)))) continue;
        used += (size_t)sprintf(to + used, "%.*s@loaded=%s", (int)name, each, before ? before : "") + 1;
    }
    return used;
}

struct wire_bytes wire_environment(void) {
    struct wire_bytes now = copy_environment();
    if (!now.at || !loaded.at || (now.size == loaded.size && !memcmp(now.at, loaded.at, now.size))) return now;
    /* No entry is shorter than a byte and its end, and each of both environments adds at most one. */
    size_t most = now.size + (now.size + loaded.size) / 2 * sizeof "@loaded=" + now.size + 2 * loaded.size;
    char *both = realloc((void *)now.at, most + 1);
    if (!both) return now;
    now.at = both;
    size_t changed = add_changes(both + now.size, now, loaded);
    changed += add_changes(both + now.size + changed, loaded, now);
    return (struct wire_bytes){both, now.size + changed};
}
