/* The index and a few facts of a process for gpucache's own library, which calls these functions through ctypes
   (gpucache/library/rows.py). Any thread may call them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <time.h>

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

EXPORTED int gpucache_count(const char *root, const char *program, unsigned long long hits,
                            unsigned long long saved_ns) {
    return journal_hits(root, program, hits, saved_ns);
}
