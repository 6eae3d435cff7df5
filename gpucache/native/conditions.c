/* Whether everything that an answer of the index depends on is unchanged: files, variables, the CPU.

   A condition has five fields: its kind, the base of its path, the path or another text, the value found, and
   more of it. gpucache/serve/conditions.py writes them. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "constants.h"
#include "entries.h"

#define CHUNK (1u << 20)
#define BLOCKS 256 /* of a library, spread over it, that are read; its build is recognised by them */
#define BLOCK 4096
#define CONDITIONS_CAP (1u << 16)
#define KNOWN 512
#define LINKS 40 /* the most on the way to a file: the kernel follows no more */
#define STAMPED "FSBNL" /* the kinds of conditions that have a stamp in a root of one's own */
#define LAYERS "OPENCL_LAYERS"
#define OUR_LAYER "/libgpucache_opencl_layer.so"

struct condition {
    char kind;
    struct wire_bytes place, text, value, more;
    uint64_t stamp; /* of a file or directory, in a root of one's own; 0 if there is none */
    int is_own;     /* whether it is in such a root and of a kind that has a stamp there */
};

/* Files and directories by their numbers: two paths that led to one file must do so again. And the compiler's library
   that was asked for last, with the place where it leads. */
struct seen {
    uint64_t field;
    char library[PATH_MAX];
    int beside; /* whether its directory is the one that it was found in, where the loader looks for others */
    uint64_t count, known; /* the places, and the end of those that are known */
    uint64_t *looked; /* see conditions_hold() */
    struct identity {
        dev_t device;
        ino_t inode;
        int known;
    } *at;
};

static int equals(struct wire_bytes field, const char *text) {
    return field.size == strlen(text) && !memcmp(field.at, text, field.size);
}

/* What this process has seen already, each by a digest: files of compilers with the results of stat(), environments. */
static _Atomic uint64_t known[KNOWN];

static int is_known(uint64_t mark, int add) {
    _Atomic uint64_t *place = &known[mark / 2 % KNOWN]; /* a mark is odd */
    if (atomic_load(place) == mark) return 1;
    if (add) atomic_store(place, mark);
    return 0;
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    *(uint64_t *)data = info->dlpi_adds + info->dlpi_subs + 1;
    return 1;
}

/* Forget all if a library was loaded or unloaded since: which one is loaded under a name may differ then. */
static void forget_if_loaded(void) {
    static _Atomic uint64_t loads;
    uint64_t now = 0;
    dl_iterate_phdr(count_loads, &now);
    if (atomic_exchange(&loads, now) == now) return;
    for (int i = 0; i < KNOWN; i++) atomic_store(&known[i], 0);
}

/* ---- paths ---- */

static int as_text(struct wire_bytes field, char text[PATH_MAX]) {
    if (!field.at || field.size >= PATH_MAX || memchr(field.at, 0, field.size)) return 0;
    memcpy(text, field.at, field.size);
    text[field.size] = 0;
    return 1;
}

/* A path without a base, in the directory of the program (w), in its process's first directory (s), or next
   to the library that a field of the question names by its number; the library itself if the text is empty. */
static int path_of(const struct question *question, const struct condition *one, struct seen *seen,
                   char path[PATH_MAX]) {
    char from[PATH_MAX], text[PATH_MAX], library[PATH_MAX];
    uint64_t field;
    if (!as_text(one->text, text)) return 0;
    if (!one->place.size) return snprintf(path, PATH_MAX, "%s", text) > 0 && *text == '/';
    if (equals(one->place, "w")) {
        if (!as_text(question->fields[AT_FOLDER], from) || !*from) return 0; /* it is gone */
    } else if (equals(one->place, "s")) {
        snprintf(from, sizeof from, "%s", question->start);
    } else {
        if (!number_in(one->place, &field) || field >= question->count) return 0;
        if (!as_text(question->fields[field], library)) return 0;
        if (one->kind == 'O') return snprintf(path, PATH_MAX, "%s", library) > 0; /* it may be a name alone */
        if (seen->field != field) {
            for (char *at; (at = strstr(library, "/./"));) memmove(at, at + 2, strlen(at + 2) + 1); /* our own spelling */
            uint64_t leads = digest(library, strlen(library), 'R') | 1; /* to itself, as this process has seen */
            seen->beside = is_known(leads, 0);
            if (seen->beside)
                strcpy(seen->library, library);
            else if (!realpath(library, seen->library))
                return 0;
            else if (!strcmp(library, seen->library))
                seen->beside = is_known(leads, 1) || 1;
            else {
                char *name = strrchr(library, '/');
                size_t size = (size_t)(strrchr(seen->library, '/') - seen->library);
                if (name) *name = 0;
                seen->beside = name && realpath(library, from) && strlen(from) == size && !memcmp(from, seen->library, size);
            }
        }
        seen->field = field;
        strcpy(from, seen->library);
        if (!*text) return snprintf(path, PATH_MAX, "%s", from) > 0;
        if (!seen->beside) return 0;
        *strrchr(from, '/') = 0;
    }
    int size = snprintf(path, PATH_MAX, "%s/%s", from, text);
    return (*from == '/' || !*from) && size > 0 && size < PATH_MAX;
}

static int is_same_file(struct seen *seen, struct wire_bytes number, const struct stat *status) {
    uint64_t place;
    if (!number.size) return 1;
    if (!number_in(number, &place) || place > seen->count) return 0;
    for (uint64_t i = 0; i < seen->known; i++) {
        struct identity *other = &seen->at[i];
        int same = other->known && other->device == status->st_dev && other->inode == status->st_ino;
        if (other->known && same != (i == place)) return 0;
    }
    if (seen->known <= place) seen->known = place + 1;
    seen->at[place] = (struct identity){status->st_dev, status->st_ino, 1};
    return 1;
}

/* ---- contents of files ---- */

/* Of a large library only blocks are read that are spread evenly; of all else everything. */
static int digest_file(int fd, uint64_t size, int spread, uint64_t *sum) {
    unsigned char *buffer = malloc(size < CHUNK ? (size_t)size + 1 : CHUNK);
    int whole = buffer != NULL;
    *sum = 0;
    if (spread && size > CHUNK) {
        for (uint64_t i = 0; whole && i < BLOCKS; i++)
            whole = read_at(fd, buffer + i * BLOCK, BLOCK, (size - BLOCK) * i / (BLOCKS - 1));
        if (whole) *sum = digest(buffer, CHUNK, 0);
    } else {
        for (uint64_t at = 0; whole && at < size; at += CHUNK) {
            size_t part = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
            whole = read_at(fd, buffer, part, at);
            if (whole) *sum = digest(buffer, part, *sum);
        }
    }
    free(buffer);
    return whole;
}

static uint64_t changed_ns(const struct stat *status) {
    return (uint64_t)status->st_ctim.tv_sec * 1000000000 + (uint64_t)status->st_ctim.tv_nsec;
}

static uint64_t written_ns(const struct stat *status) {
    return (uint64_t)status->st_mtim.tv_sec * 1000000000 + (uint64_t)status->st_mtim.tv_nsec;
}

/* Whether a file has changed since this process loaded its compiler, which may have read it before. */
static int is_late(const struct stat *status) { return wire_begun_ns() && changed_ns(status) > wire_begun_ns(); }

/* Whether a file, or a directory with the same names, is as it was when a stamp of it was taken; 0 stands for none. */
static int is_as_it_was(uint64_t stamp, const struct stat *status) {
    uint64_t now[] = {status->st_dev, status->st_ino, (uint64_t)status->st_size, written_ns(status),
                      changed_ns(status)};
    return stamp && digest(now, sizeof now, 0) == stamp;
}

/* ---- loaded libraries ---- */

#define PARTS 32 /* the most segments of a library's file that are looked at */

/* A library on disk, and the loaded ones of its name: whether one of them is this file, and the last that is not. */
struct loaded {
    const char *names[2];
    unsigned char id[ID];
    size_t size; /* of the build id; 0 if the file has none */
    int same;
    const void *other; /* an address in it; NULL if there is none */
    int is_known_other; /* by its build id */
};

/* The build id among some notes; its size, or 0. See elf(5). */
static size_t id_among(const unsigned char *notes, size_t size, size_t align, unsigned char id[ID]) {
    align = align == 8 ? 8 : 4;
    for (size_t at = 0; size - at >= sizeof(ElfW(Nhdr));) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note, text = name + ((note.n_namesz + align - 1) & ~(align - 1));
        size_t next = text + ((note.n_descsz + align - 1) & ~(align - 1));
        if (note.n_namesz > size || note.n_descsz > size || text + note.n_descsz > size) return 0;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + name, "GNU", 4)) {
            if (note.n_descsz > ID) return 0;
            memcpy(id, notes + text, note.n_descsz);
            return note.n_descsz;
        }
        if (next > size) return 0;
        at = next;
    }
    return 0;
}

size_t id_of_file(int fd, unsigned char id[ID]) {
    ElfW(Ehdr) head;
    ElfW(Phdr) parts[PARTS];
    unsigned char notes[1024];
    size_t found = 0;
    if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG)) return 0;
    if (head.e_phentsize != sizeof *parts || head.e_phnum > PARTS) return 0;
    if (!read_at(fd, parts, head.e_phnum * sizeof *parts, head.e_phoff)) return 0;
    for (int i = 0; i < head.e_phnum && !found; i++)
        if (parts[i].p_type == PT_NOTE && parts[i].p_filesz <= sizeof notes &&
            read_at(fd, notes, parts[i].p_filesz, parts[i].p_offset))
            found = id_among(notes, parts[i].p_filesz, parts[i].p_align, id);
    return found;
}

size_t id_of_loaded(const struct dl_phdr_info *info, unsigned char id[ID]) {
    size_t found = 0;
    for (int i = 0; i < info->dlpi_phnum && !found; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_NOTE)
            found = id_among((const unsigned char *)(info->dlpi_addr + part->p_vaddr), part->p_memsz, part->p_align, id);
    }
    return found;
}

/* Whether two names are of one library: a link has a shorter version, as in libx.so.1 and libx.so.1.2. */
static int is_of_name(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return (!*one && (!*other || *other == '.')) || (!*other && *one == '.');
}

static int look_at_loaded(struct dl_phdr_info *info, size_t size, void *data) {
    struct loaded *wanted = data;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    unsigned char id[ID];
    const void *address = NULL;
    (void)size;
    if (!*name || (!is_of_name(name, wanted->names[0]) && !is_of_name(name, wanted->names[1]))) return 0;
    size_t found = id_of_loaded(info, id);
    for (int i = 0; i < info->dlpi_phnum && !address; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD) address = (const void *)(info->dlpi_addr + part->p_vaddr);
    }
    if (found && found == wanted->size && !memcmp(id, wanted->id, found)) return wanted->same = 1;
    wanted->other = address;
    wanted->is_known_other = found || wanted->size;
    return 0;
}

/* A library without a build id that is loaded, and the file of its name, mapped to be compared with it. */
struct pair {
    const void *addresses[2];
    char numbers[2][64], paths[2][PATH_MAX], told[64], path[PATH_MAX];
    uint64_t mark;
};

/* The pairs of a question: /proc/self/maps is long, and is read once for all of them. */
struct pairs {
    struct pair *at;
    size_t count;
};

/* Read which file is mapped at each address. */
static void read_maps(struct pairs *pairs) {
    char *line = NULL;
    size_t room = 0;
    int fd = open_above(AT_FDCWD, "/proc/self/maps", 0);
    FILE *maps = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (maps && getline(&line, &room, maps) > 0) {
        char *at;
        uintptr_t begin = strtoul(line, &at, 16), end = *at ? strtoul(at + 1, &at, 16) : 0;
        char *file = *at ? strchr(at + 1, ' ') : NULL; /* after the rights */
        file = file ? strchr(file + 1, ' ') : NULL;    /* and the offset: the device and the inode */
        for (size_t i = 0; file && i < 2 * pairs->count; i++) {
            struct pair *pair = &pairs->at[i / 2];
            if ((uintptr_t)pair->addresses[i % 2] < begin || (uintptr_t)pair->addresses[i % 2] >= end) continue;
            size_t device = strcspn(file + 1, " ") + 1, inode = strcspn(file + device + 1, " \n");
            snprintf(pair->numbers[i % 2], sizeof *pair->numbers, "%.*s", (int)(device + inode), file + 1);
            snprintf(pair->paths[i % 2], sizeof *pair->paths, "%s", file + device + 1 + inode);
        }
    }
    free(line);
    if (maps)
        fclose(maps);
    else if (fd >= 0)
        close(fd);
}

/* Whether all loaded libraries are their files, as /proc/self/maps has them: stat() may tell another device. On Btrfs
   files of two subvolumes share all numbers but those of stat(), so that the paths must be the same too if these are
   not the numbers of the maps. */
static int are_loaded(struct pairs *pairs, int same, char why[WHY_SIZE]) {
    if (same && pairs->count) read_maps(pairs);
    for (struct pair *one = pairs->at; one < pairs->at + pairs->count; one++) {
        munmap((void *)one->addresses[1], 1);
        if (!same) continue;
        same = *one->numbers[0] && !strcmp(one->numbers[0], one->numbers[1]) &&
               (!strcmp(one->numbers[0], one->told) || !strcmp(one->paths[0], one->paths[1]));
        if (same)
            is_known(one->mark, 1);
        else
            snprintf(why, WHY_SIZE, "%.400s is not the build that this process has loaded", one->path);
    }
    free(pairs->at);
    return same;
}

/* Whether the library that is loaded under the name of a file is this file; also if none is. By the build id,
   else by what is mapped, which are_loaded() sees: a library that was replaced goes on in the processes that loaded it. One that was
   written in place may, too: on an overlay it keeps its number. */
static int is_what_is_loaded(int fd, const char *path, const struct stat *status, struct pairs *pairs) {
    char real[PATH_MAX];
    struct loaded wanted = {.size = 0};
    if (!realpath(path, real)) return 0;
    wanted.names[0] = strrchr(path, '/') + 1;
    wanted.names[1] = strrchr(real, '/') + 1;
    wanted.size = id_of_file(fd, wanted.id);
    dl_iterate_phdr(look_at_loaded, &wanted);
    if (wanted.same || !wanted.other) return 1;
    if (wanted.is_known_other || is_late(status)) return 0;
    uint64_t now[] = {(uintptr_t)wanted.other, status->st_dev, status->st_ino, changed_ns(status)};
    uint64_t mine = digest(now, sizeof now, PARTS) | 1;
    if (is_known(mine, 0)) return 1;
    struct pair *more = realloc(pairs->at, (pairs->count + 1) * sizeof *more);
    if (!more) return 0;
    pairs->at = more;
    void *mapped = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) return 0;
    struct pair *pair = &more[pairs->count++];
    *pair = (struct pair){.addresses = {wanted.other, mapped}, .mark = mine};
    snprintf(pair->told, sizeof pair->told, "%02x:%02x %llu", major(status->st_dev), minor(status->st_dev),
             (unsigned long long)status->st_ino);
    snprintf(pair->path, sizeof pair->path, "%s", path);
    return 1;
}

/* ---- preloaded libraries that redirect paths ---- */

/* The functions by which compilers look for files, with the form of each. Where a preloaded library has replaced
   one, it may give them other files than this one reads. */
static const struct {
    const char *name, form;
} of_files[] = {FUNCTIONS_OF_FILES};

#define OF_FILES (sizeof of_files / sizeof *of_files)

/* Whether a function finds the file that libc finds, or none as well. */
static int finds(const void *function, char form, const char *path, int there, const struct stat *status) {
    struct stat found = *status;
    FILE *stream = NULL;
    int fd = -1, failed = 0;
    switch (form) {
    case 'o': fd = ((int (*)(const char *, int, ...))function)(path, O_PATH | O_CLOEXEC); break;
    case 'a': fd = ((int (*)(int, const char *, int, ...))function)(AT_FDCWD, path, O_PATH | O_CLOEXEC); break;
    case 'f':
        if (there && !S_ISREG(status->st_mode)) return 1; /* it might wait for a writer */
        stream = ((FILE * (*)(const char *, const char *)) function)(path, "re");
        fd = stream ? fileno(stream) : -1;
        break;
    case 'e': failed = ((int (*)(const char *, int))function)(path, F_OK); break;
    case 's': failed = ((int (*)(const char *, struct stat *))function)(path, &found); break;
    default: failed = ((int (*)(int, const char *, struct stat *))function)(1, path, &found);
    }
    if (form == 'o' || form == 'a' || form == 'f') failed = fd < 0 || fstat(fd, &found);
    if (stream)
        fclose(stream);
    else if (fd >= 0)
        close(fd);
    return there ? !failed && found.st_dev == status->st_dev && found.st_ino == status->st_ino : failed;
}

/* Whether a preloaded library may give the compiler another file than libc's own functions find at a path. */
static int is_redirected(const char *path) {
    static atomic_int none; /* no function is replaced, as in most processes */
    if (atomic_load(&none)) return 0;
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *own = libc ? dlsym(libc, "open") : NULL;
    struct stat status = {0};
    int same = 1, replaced = 0;
    int fd = own ? ((int (*)(const char *, int, ...))own)(path, O_PATH | O_CLOEXEC) : -1;
    int there = fd >= 0 && !fstat(fd, &status);
    for (size_t i = 0; own && same && i < OF_FILES; i++) {
        const void *used = dlsym(RTLD_DEFAULT, of_files[i].name);
        if (!used || used == dlsym(libc, of_files[i].name)) continue;
        replaced = 1;
        same = finds(used, of_files[i].form, path, there, &status);
    }
    if (fd >= 0) close(fd);
    if (libc) dlclose(libc);
    if (!replaced) atomic_store(&none, 1);
    return !same;
}

/* ---- files ---- */

/* A mark of a compiler's file that meets a condition, with the stamp if that is believed. */
static uint64_t mark_of(const struct condition *one, const char *path, const struct stat *status) {
    uint64_t now[] = {status->st_dev, status->st_ino, (uint64_t)status->st_size, changed_ns(status),
                      (uint64_t)status->st_mtim.tv_sec, (uint64_t)status->st_mtim.tv_nsec, (uint64_t)one->kind,
                      one->stamp};
    uint64_t sum = digest(path, strlen(path), digest(now, sizeof now, 0));
    return digest(one->value.size ? one->value.at : "", one->value.size, sum) | 1;
}

/* A file: its value is empty if it only has to exist; of a library with a build id (I) it is that; else its size and
   its content, of a compiler's library (S) blocks of it, for which a stamp stands. In a view a value is a stamp. */
static int file_holds(const struct condition *one, const char *path, struct stat status, struct seen *seen,
                      struct pairs *pairs, const char **what) {
    const unsigned char *value = one->value.at;
    uint64_t held = mark_of(one, path, &status);
    *what = "is not the same file as before";
    /* Nothing has to be opened of a compiler's file that this process has seen, and of a header with its stamp. */
    if (one->kind != 'F' && is_known(held, 0)) return is_same_file(seen, one->more, &status);
    if (one->kind == 'F' && one->value.size == 16 && S_ISREG(status.st_mode) && is_as_it_was(one->stamp, &status))
        return is_same_file(seen, one->more, &status);
    int fd = open_above(AT_FDCWD, path, 0), same = 0;
    size_t before = pairs->count;
    *what = "cannot be read";
    if (fd < 0) return 0;
    int regular = !fstat(fd, &status) && S_ISREG(status.st_mode);
    if (regular && !one->value.size) same = 1;
    if (regular && one->kind == 'I') {
        unsigned char id[ID];
        *what = "is another build";
        same = one->value.size && id_of_file(fd, id) == one->value.size && !memcmp(id, one->value.at, one->value.size);
    }
    if (regular && one->kind != 'I' && one->value.size == 8) {
        *what = "has changed";
        same = is_as_it_was(number_at(value), &status);
    }
    if (regular && one->kind != 'I' && one->value.size == 16) {
        uint64_t now[] = {status.st_dev, status.st_ino, (uint64_t)status.st_mtim.tv_sec,
                          (uint64_t)status.st_mtim.tv_nsec, (uint64_t)status.st_ctim.tv_sec,
                          (uint64_t)status.st_ctim.tv_nsec};
        uint64_t size = (uint64_t)status.st_size, sum, mine = digest(now, sizeof now, digest(value, 16, 0)) | 1;
        *what = "has changed";
        same = is_as_it_was(one->stamp, &status) || (one->kind != 'F' && size == number_at(value) && is_known(mine, 0));
        if (!same && size == number_at(value)) {
            same = digest_file(fd, size, one->kind == 'S', &sum) && sum == number_at(value + 8);
            if (same && one->kind != 'F') is_known(mine, 1);
        }
    }
    if (same && (one->kind == 'S' || one->kind == 'I') && !is_what_is_loaded(fd, path, &status, pairs)) {
        *what = "is not the build that this process has loaded";
        same = 0;
    }
    if (same && one->kind == 'B' && is_late(&status)) {
        *what = "has changed since this process loaded its compiler";
        same = 0;
    }
    close(fd);
    if (same && one->kind != 'F' && pairs->count == before) is_known(mark_of(one, path, &status), 1);
    if (same && !is_same_file(seen, one->more, &status)) {
        *what = "is not the same file as before";
        return 0;
    }
    return same;
}

/* Whether a directory has as many names as before, and the same, in any order. */
static int names_hold(const struct condition *one, const char *path) {
    uint64_t count = 0, sum = 0;
    int fd = open_above(AT_FDCWD, path, O_DIRECTORY);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder && fd >= 0) close(fd);
    errno = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            count++, sum += digest(entry->d_name, strlen(entry->d_name), 0);
    int whole = folder && !errno;
    if (folder) closedir(folder);
    return whole && one->value.size == 16 && count == number_at(one->value.at) &&
           sum == number_at((const char *)one->value.at + 8);
}

/* Whether a directory contains nothing but one file, which may be gone. */
static int is_alone(const char *path) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", path);
    char *base = strrchr(above, '/');
    if (!base) return 0;
    *base++ = 0;
    DIR *folder = opendir(above);
    int alone = folder || errno == ENOENT;
    for (struct dirent *entry; folder && alone && (entry = readdir(folder));)
        alone = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, base);
    if (folder) closedir(folder);
    return alone;
}

/* A number of a file, a link or a directory; for a directory itself without the times that new names in it set. */
static uint64_t sum_of(const struct stat *status, int whole, uint64_t sum) {
    uint64_t written = written_ns(status), changed = changed_ns(status);
    uint64_t now[] = {status->st_dev, status->st_ino, 0, 0, written == changed ? 0 : changed};
    if (whole) now[2] = (uint64_t)status->st_size, now[3] = written, now[4] = changed;
    return digest(now, sizeof now, sum);
}

/* A number of all that leads to a path: links, directories, and the one that lacks the rest with its names' times. */
static uint64_t look_at(const char *path, int *links, uint64_t sum) {
    char way[PATH_MAX], target[PATH_MAX];
    struct stat status, above;
    if (lstat("/", &status)) return sum;
    for (const char *end = path; *end;) {
        end += 1 + strcspn(end + 1, "/");
        snprintf(way, sizeof way, "%.*s", (int)(end - path), path);
        above = status;
        if (lstat(way, &status)) return sum_of(&above, 1, sum);
        sum = sum_of(&status, !S_ISDIR(status.st_mode), sum);
        if (!S_ISLNK(status.st_mode) || !*links) continue;
        size_t before = (size_t)(strrchr(way, '/') - way) + 1;
        ssize_t size = readlink(way, target + before, sizeof target - before - 1);
        if (size <= 0) return sum;
        target[before + (size_t)size] = 0;
        memcpy(target, way, before);
        --*links;
        sum = look_at(target[before] == '/' ? target + before : target, links, sum);
        if (stat(way, &status)) return sum;
    }
    return sum;
}

static int path_holds(const struct question *question, const struct condition *one, struct seen *seen,
                      struct pairs *pairs, char why[WHY_SIZE]) {
    char path[PATH_MAX] = "", target[PATH_MAX], expected[PATH_MAX];
    struct stat status;
    const char *what = "has changed";
    int same = 0;
    if (!path_of(question, one, seen, path)) {
        snprintf(why, WHY_SIZE, "the place of a file that it depends on is unknown");
        return 0;
    }
    if (is_redirected(path)) {
        snprintf(why, WHY_SIZE, "a preloaded library redirects %.400s", path);
        return 0;
    }
    int is_read = strchr("FANDR", one->kind) && (!one->place.size || equals(one->place, "w")); /* by the program */
    if (seen->looked && is_read) *seen->looked = look_at(path, &(int){LINKS}, *seen->looked);
    int failed = stat(path, &status) ? errno : 0;
    switch (one->kind) {
    case 'A':
        what = "was not there";
        same = failed == ENOENT || failed == ENOTDIR || failed == ENAMETOOLONG || failed == EINVAL;
        break;
    case 'D':
        what = "is not the same directory as before";
        same = !failed && S_ISDIR(status.st_mode) && is_same_file(seen, one->more, &status);
        break;
    case 'L': case 'N':
        what = "holds other files";
        same = !failed && S_ISDIR(status.st_mode) && (is_as_it_was(one->stamp, &status) || names_hold(one, path));
        same = same || (one->kind == 'L' && !one->is_own);
        break;
    case 'R':
        what = "leads to another place";
        same = as_text(one->value, expected) && realpath(path, target) && !strcmp(target, expected);
        break;
    case 'O':
        what = "is not alone in its directory";
        same = is_alone(path);
        break;
    default:
        what = "cannot be read";
        same = !failed && file_holds(one, path, status, seen, pairs, &what);
    }
    if (!same) snprintf(why, WHY_SIZE, "%.400s %s", path, what);
    return same;
}

/* ---- variables ---- */

/* Whether a text fits a pattern, in which * matches any text and ? one character. */
static int fits(const char *pattern, size_t size, const char *text, size_t length) {
    size_t star = SIZE_MAX, back = 0, at = 0, in = 0;
    while (at < length) {
        if (in < size && pattern[in] == '*') {
            star = in++;
            back = at;
        } else if (in < size && (pattern[in] == '?' || pattern[in] == text[at])) {
            in++, at++;
        } else if (star != SIZE_MAX) {
            in = star + 1;
            at = ++back;
        } else {
            return 0;
        }
    }
    while (in < size && pattern[in] == '*') in++;
    return in == size;
}

/* The next of some texts, each ended by NUL: 1, or 0 after the last. */
static int next_text(struct wire_bytes *texts, struct wire_bytes *text) {
    const char *end = texts->size ? memchr(texts->at, 0, texts->size) : NULL;
    if (!end) return 0;
    *text = (struct wire_bytes){texts->at, (size_t)(end - (const char *)texts->at)};
    texts->at = end + 1;
    texts->size -= text->size + 1;
    return 1;
}

static int fits_any(struct wire_bytes patterns, const char *text, size_t length) {
    struct wire_bytes pattern;
    while (next_text(&patterns, &pattern))
        if (fits(pattern.at, pattern.size, text, length)) return 1;
    return 0;
}

static int is_among(struct wire_bytes texts, const char *text, size_t length) {
    struct wire_bytes each;
    while (next_text(&texts, &each))
        if (each.size == length && !memcmp(each.at, text, length)) return 1;
    return 0;
}

/* The names of layers without our own, which changes no binary. */
static size_t without_ours(const char *value, size_t size, char left[PATH_MAX]) {
    size_t used = 0, ours = strlen(OUR_LAYER);
    for (const char *end, *stop = value + size; value < stop; value = end + 1) {
        end = memchr(value, ':', (size_t)(stop - value));
        if (!end) end = stop;
        size_t length = (size_t)(end - value);
        if (!length || (length > ours && !memcmp(end - ours, OUR_LAYER, ours))) continue;
        if (used + length + 2 > PATH_MAX) return PATH_MAX; /* longer than any kept value */
        if (used) left[used++] = ':';
        memcpy(left + used, value, length);
        used += length;
    }
    return used;
}

/* Each variable whose name fits a pattern of the text and none of the value has to be one of those kept. */
static int variables_hold(const struct question *question, const struct condition *one, char why[WHY_SIZE]) {
    struct wire_bytes environment = question->fields[AT_ENVIRONMENT], kept = one->more, each = {0};
    size_t expected = 0, found = 0;
    uint64_t held = digest(environment.at, environment.size, 'E');
    held = digest(one->text.at, one->text.size, digest(one->value.at, one->value.size, held));
    held = digest(kept.at, kept.size, held) | 1;
    if (is_known(held, 0)) return 1;
    while (next_text(&kept, &each)) expected++;
    while (next_text(&environment, &each)) {
        char layers[sizeof LAYERS + PATH_MAX] = LAYERS "=";
        const char *sign = memchr(each.at, '=', each.size);
        size_t length = sign ? (size_t)(sign - (const char *)each.at) : 0;
        if (!length || !fits_any(one->text, each.at, length) || fits_any(one->value, each.at, length)) continue;
        const char *name = each.at; /* and the value after it */
        struct wire_bytes all = question->fields[AT_ENVIRONMENT], before = {all.at, (size_t)(name - (char *)all.at)};
        if (is_among(before, each.at, each.size)) continue; /* a text that is listed twice counts once */
        if (length == strlen(LAYERS) && !memcmp(name, LAYERS, length)) {
            size_t left = without_ours(sign + 1, each.size - length - 1, layers + length + 1);
            if (!left) continue;
            each = (struct wire_bytes){layers, length + 1 + (left < PATH_MAX ? left : 0)};
        }
        found++;
        if (is_among(one->more, each.at, each.size)) continue;
        snprintf(why, WHY_SIZE, "the variable %.*s is set to '%.*s', which was not so",
                 (int)(length < 100 ? length : 100), name,
                 (int)(each.size - length - 1 < 200 ? each.size - length - 1 : 200),
                 (const char *)each.at + length + 1);
        return 0;
    }
    if (found == expected) return is_known(held, 1) || 1;
    for (kept = one->more; next_text(&kept, &each);)
        if (!is_among(question->fields[AT_ENVIRONMENT], each.at, each.size)) break;
    snprintf(why, WHY_SIZE, "a variable is not set as it was: %.*s", (int)(each.size < 200 ? each.size : 200),
             (const char *)each.at);
    return 0;
}

/* Whether no directory of LD_LIBRARY_PATH has a file of a name. */
static int is_in_no_path(const struct question *question, struct wire_bytes name, char why[WHY_SIZE]) {
    static const char variable[] = "LD_LIBRARY_PATH=";
    struct wire_bytes environment = question->fields[AT_ENVIRONMENT], each;
    while (next_text(&environment, &each)) {
        if (each.size < sizeof variable - 1 || memcmp(each.at, variable, sizeof variable - 1)) continue;
        const char *at = (const char *)each.at + sizeof variable - 1, *stop = (const char *)each.at + each.size;
        for (const char *end; at < stop; at = end + 1) {
            char path[PATH_MAX];
            end = memchr(at, ':', (size_t)(stop - at));
            if (!end) end = stop;
            int size = snprintf(path, sizeof path, "%.*s/%.*s", (int)(end - at), at, (int)name.size,
                                (const char *)name.at);
            if (end == at || size < 0 || size >= PATH_MAX || access(path, F_OK)) continue;
            snprintf(why, WHY_SIZE, "%.400s was not there", path);
            return 0;
        }
        return 1; /* the first of a name counts */
    }
    return 1;
}

/* Whether the CPU has exactly some features of those that fit a pattern. */
static int cpu_holds(const struct condition *one, char why[WHY_SIZE]) {
    static const char *const labels[] = {"flags", "Features"};
    char text[1 << 14];
    size_t size = 0, expected = 0, found = 0;
    struct wire_bytes kept = one->value, each;
    uint64_t held = digest(one->value.at, one->value.size, digest(one->text.at, one->text.size, 'C')) | 1;
    if (is_known(held, 0)) return 1;
    int fd = open_above(AT_FDCWD, "/proc/cpuinfo", 0), other = fd < 0;
    while (next_text(&kept, &each)) expected++;
    while (fd >= 0 && size < sizeof text - 1) {
        ssize_t got = read(fd, text + size, sizeof text - 1 - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size += (size_t)got;
    }
    if (fd >= 0) close(fd);
    text[size] = 0;
    char *line = NULL, *place;
    for (line = strtok_r(text, "\n", &place); line; line = strtok_r(NULL, "\n", &place))
        if (!strncmp(line, labels[0], strlen(labels[0])) || !strncmp(line, labels[1], strlen(labels[1]))) break;
    line = line ? strchr(line, ':') : NULL;
    for (char *word = line ? strtok_r(line + 1, " \t", &place) : NULL; word; word = strtok_r(NULL, " \t", &place)) {
        if (!fits_any(one->text, word, strlen(word))) continue;
        found++;
        other = other || !is_among(one->value, word, strlen(word));
    }
    if (line && !other && found == expected) return is_known(held, 1) || 1;
    snprintf(why, WHY_SIZE, "this CPU has other instruction sets");
    return 0;
}

/* ---- all of them ---- */

static int next_condition(struct wire_reply *record, struct condition *one) {
    struct wire_bytes kind;
    if (!wire_next(record, &kind) || kind.size != 1) return 0;
    one->kind = *(const char *)kind.at;
    return wire_next(record, &one->place) && wire_next(record, &one->text) && wire_next(record, &one->value) &&
           wire_next(record, &one->more);
}

static int holds(const struct question *question, const struct condition *one, struct seen *seen,
                 struct pairs *pairs, char why[WHY_SIZE]) {
    char folder[PATH_MAX];
    switch (one->kind) {
    case 'F': case 'S': case 'I': case 'B': case 'A': case 'D': case 'L': case 'N': case 'R': case 'O':
        return path_holds(question, one, seen, pairs, why);
    case 'E': return variables_hold(question, one, why);
    case 'P': return is_in_no_path(question, one->text, why);
    case 'C': return cpu_holds(one, why);
    case 'W':
        if (as_text(one->text, folder) && equals(question->fields[AT_FOLDER], folder)) return 1;
        snprintf(why, WHY_SIZE, "its options or headers tie it to the directory it was built in, %.*s",
                 (int)(one->text.size < 200 ? one->text.size : 200), (const char *)one->text.at);
        return 0;
    default: snprintf(why, WHY_SIZE, "the index has a condition that this library does not know"); return 0;
    }
}

int conditions_hold(const struct question *question, struct wire_reply *record, struct wire_bytes stamps,
                    uint64_t *looked, char why[WHY_SIZE]) {
    struct condition one;
    struct seen seen = {.field = UINT64_MAX, .looked = looked};
    struct pairs pairs = {NULL, 0};
    snprintf(why, WHY_SIZE, "its row is damaged");
    if (!next_number(record, &seen.count) || seen.count > CONDITIONS_CAP) return 0;
    seen.at = calloc(seen.count + 1, sizeof *seen.at);
    int same = seen.at != NULL;
    forget_if_loaded();
    for (uint64_t left = seen.count; same && left; left--) {
        same = next_condition(record, &one);
        one.is_own = same && stamps.size >= 8 && memchr(STAMPED, one.kind, strlen(STAMPED));
        one.stamp = one.is_own ? number_at(stamps.at) : 0;
        if (one.is_own) {
            stamps = (struct wire_bytes){(const char *)stamps.at + 8, stamps.size - 8};
        }
        same = same && holds(question, &one, &seen, &pairs, why);
    }
    free(seen.at);
    if (looked) *looked |= 1;
    return are_loaded(&pairs, same, why);
}
