/* The index and a few facts of a process for gpucache's own library, which calls these functions through ctypes
   (gpucache/library/rows.py). Any thread may call them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "constants.h"
#include "entries.h"
#include "journal.h"

#define EXPORTED __attribute__((visibility("default")))

/* When this process began, in nanoseconds since 1970, from its 22nd field in /proc/self/stat, in ticks since the boot
   (proc_pid_stat(5)); 0 if that is unknown. */
static uint64_t process_begun_ns(void) {
    char text[4096];
    struct timespec now, up;
    int fd = open_above(AT_FDCWD, "/proc/self/stat", 0);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (size <= 0 || clock_gettime(CLOCK_BOOTTIME, &up) || clock_gettime(CLOCK_REALTIME, &now)) return 0;
    text[size] = 0;
    char *at = strrchr(text, ')'); /* the end of the name, which may have anything in it */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    uint64_t ticks = at ? strtoull(at, NULL, 10) : 0, a_second = (uint64_t)sysconf(_SC_CLK_TCK);
    if (!ticks || !a_second) return 0;
    uint64_t age_ns = (uint64_t)up.tv_sec * 1000000000 + (uint64_t)up.tv_nsec - ticks * (1000000000 / a_second);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec - age_ns;
}

EXPORTED int gpucache_abi(void) { return LIBRARY_ABI << 12 | (int)sizeof(struct wire_reply); }

/* Note the current directory and when this process began, before any compiler was loaded, and return the latter; 0 if
   that is unknown, and then no file that a compiler may have read before is believed if it changed ever since. */
EXPORTED uint64_t gpucache_begin(void) {
    uint64_t begun_ns = process_begun_ns();
    opens_at_once = 1;
    index_begin_anywhere();
    wire_begun_at(begun_ns ? begun_ns : 1);
    return begun_ns;
}

/* The fields of a request, from their bytes one after another and the size of each; NULL without any. To be freed. */
static struct wire_bytes *fields_of(const char *bytes, const size_t *sizes, size_t count) {
    struct wire_bytes *fields = count ? calloc(count, sizeof *fields) : NULL;
    for (size_t at = 0; fields && at < count; bytes += sizes[at++])
        fields[at] = (struct wire_bytes){bytes, sizes[at]};
    return fields;
}

/* Answer a question from the rows of some roots, which are separated by ':'. The kind and the fields are those of a
   request (gpucache/serve/wire.py). 1 and a hit, whose note and whose fields from reply->next on are as in a record,
   and which must be given to gpucache_done(); or 0. errno stays as it is. */
EXPORTED int gpucache_answer(const char *roots, int may_write, unsigned kind, const char *bytes, const size_t *sizes,
                             size_t count, struct wire_reply *reply) {
    struct wire_bytes *fields = fields_of(bytes, sizes, count);
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    int answered = fields && index_answer_below(roots, may_write, (enum wire_kind)kind, fields, count, reply);
    free(fields);
    return answered;
}

EXPORTED void gpucache_done(struct wire_reply *reply) { wire_done(reply); }

/* Whether this process meets conditions, as a record has them, for the answer to a question. */
EXPORTED int gpucache_holds(unsigned kind, const char *bytes, const size_t *sizes, size_t count,
                            const void *conditions, size_t conditions_size) {
    struct wire_bytes *fields = fields_of(bytes, sizes, count);
    char why[WHY_SIZE];
    struct wire_reply view = {.body = (unsigned char *)conditions, .size = conditions_size};
    int holds = fields && count > AT_DEVICES && wire_is_sound(&view) &&
                index_meets((enum wire_kind)kind, fields, count, &view, why);
    free(fields);
    return holds;
}

/* The file of the driver that a platform or device of OpenCL belongs to, or NULL: the first field of its handle leads
   to the driver's table of functions, which is in that file. */
EXPORTED const char *gpucache_driver_of(const void *const *handle) {
    Dl_info found;
    return *handle && dladdr(*handle, &found) ? found.dli_fname : NULL;
}

/* The file of a library that is loaded under a name, or NULL. */
EXPORTED const char *gpucache_file_of(const char *name) {
    struct link_map *found = NULL;
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return NULL;
    int failed = dlinfo(library, RTLD_DI_LINKMAP, &found);
    dlclose(library);
    return failed || !found ? NULL : found->l_name;
}

/* The entry of a key in the first root that has one: 1 and its head and payload, every byte checked, which must be given
   to gpucache_done(); or 0. */
EXPORTED int gpucache_entry(const char *all, int may_write, const unsigned char key[32], struct wire_reply *reply) {
    struct reference wanted = {.is_key = 1};
    struct roots roots = {.all = all};
    struct entry entry;
    int kept = errno;
    memcpy(wanted.key, key, sizeof wanted.key);
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    int found = entry_open(&roots, &wanted, &entry);
    size_t size = found ? 8 + entry.head + entry.size : 0;
    if (found && (reply->body = malloc(size))) {
        unsigned char *payload = wire_put(reply->body, entry.front + ENTRY_HEADER, entry.head);
        payload = wire_put(payload, NULL, entry.size);
        if (entry_read(&entry, payload, may_write))
            reply->kind = WIRE_HIT, reply->size = size;
        else
            wire_done(reply);
    } else if (found) {
        entry_close(&entry);
    }
    errno = kept;
    return reply->kind == WIRE_HIT;
}

/* ---- the builds of libraries ---- */

#define NAMES 8

/* Libraries by the beginnings of their files' names; those that are loaded by their build ids and paths. */
struct libraries {
    const char *names[NAMES];
    size_t count;
    int is_unclear; /* which one counts */
    struct {
        unsigned char id[ID];
        size_t size;
        char path[PATH_MAX];
    } at[NAMES];
};

/* Which of the libraries a file is by its name, up to ".so"; their count if none. */
static size_t library_of(const struct libraries *libraries, const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *end = strstr(name, ".so");
    size_t each = 0, size = end ? (size_t)(end - name) : 0;
    while (each < libraries->count && (strlen(libraries->names[each]) != size || strncmp(libraries->names[each], name, size)))
        each++;
    return each;
}

static int note_loaded(struct dl_phdr_info *info, size_t size, void *data) {
    struct libraries *libraries = data;
    size_t at = library_of(libraries, info->dlpi_name);
    (void)size;
    if (at == libraries->count) return 0;
    if (libraries->at[at].size || strlen(info->dlpi_name) >= PATH_MAX) return libraries->is_unclear = 1;
    strcpy(libraries->at[at].path, info->dlpi_name);
    libraries->at[at].size = id_of_loaded(info, libraries->at[at].id);
    return libraries->is_unclear = !libraries->at[at].size;
}

/* Take those that are not loaded from a directory: of several files the first. */
static int takes_from(struct libraries *libraries, const char *place) {
    char names[NAMES][NAME_MAX + 1] = {""};
    DIR *folder = opendir(place);
    if (!folder) return 0;
    for (struct dirent *each; (each = readdir(folder));) {
        size_t at = library_of(libraries, each->d_name);
        if (at == libraries->count || libraries->at[at].size) continue;
        if (!*names[at] || strcmp(each->d_name, names[at]) < 0) strcpy(names[at], each->d_name);
    }
    int taken = 1;
    for (size_t at = 0; at < libraries->count; at++) {
        int fd = *names[at] ? openat(dirfd(folder), names[at], O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
        libraries->at[at].size += fd < 0 ? 0 : id_of_file(fd, libraries->at[at].id);
        if (*names[at] && !libraries->at[at].size) taken = 0;
        if (fd >= 0) close(fd);
    }
    closedir(folder);
    return taken;
}

/* Write the build ids of libraries, each in hex before a line's end and empty if it is not installed: as loaded, else
   of the file next to those. The names are separated by NULs, the first is loaded. 0 where Python has to look: without
   a build id, with two libraries of a name, or in several directories. */
EXPORTED int gpucache_builds(const char *names, size_t size, char *ids, size_t room) {
    struct libraries libraries = {.count = 0};
    char place[PATH_MAX] = "", real[PATH_MAX];
    int kept = errno;
    for (const char *at = names; at < names + size && libraries.count < NAMES; at += strlen(at) + 1)
        libraries.names[libraries.count++] = at;
    dl_iterate_phdr(note_loaded, &libraries);
    int known = !libraries.is_unclear && libraries.count && libraries.at[0].size;
    for (size_t at = 0; known && at < libraries.count; at++) {
        if (!libraries.at[at].size) continue;
        known = realpath(libraries.at[at].path, real) && library_of(&libraries, real) == at;
        if (known) *strrchr(real, '/') = 0;
        known = known && (!*place || !strcmp(place, real));
        if (known) strcpy(place, real);
    }
    known = known && takes_from(&libraries, place) && room > libraries.count * (2 * ID + 1);
    for (size_t at = 0; known && at < libraries.count; at++) {
        for (size_t each = 0; each < libraries.at[at].size; each++) ids += sprintf(ids, "%02x", libraries.at[at].id[each]);
        ids += sprintf(ids, "\n");
    }
    errno = kept;
    return known;
}

EXPORTED int gpucache_count(const char *root, const char *program, unsigned long long hits,
                            unsigned long long saved_ns) {
    return journal_hits(root, program, hits, saved_ns);
}
