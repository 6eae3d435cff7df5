/* The program that begins `gpucache run -- COMMAND`: it starts the command, waits, and writes the line about its hits.

   Python takes 12 ms to start, which is as long as some programs with hits run. So it starts only for what this file
   cannot do: for other verbs and options, for the first question that no index answers, and for an end that is more
   than hits. Python then takes the place of this program in the same process, and adopts the command: it is still its
   child, the signals that are to be passed on are still blocked, and the socket is open. GPUCACHE_RUN_ADOPTED has the
   numbers: the command's process, the socket, the lock of its directory, and the directory; GPUCACHE_RUN_UNPACKED has the
   lock and the directory of a cache in one file, which Python goes on with and writes. Where Python cannot start either,
   the command goes on without answers, and keeps its exit code.

   Installed as `gpucache`, beside the script gpucache-python, which the installer made for its interpreter; or called
   by Python with the words that start it again: gpucache_run --by=3 python -m gpucache run -- COMMAND. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "constants.h"
#include "journal.h"
#include "root_file.h"

#define NOTES_CAP (8 << 20) /* what is read of the file next to the socket; Python reads more */
#define LAYER "libgpucache_opencl_layer.so"
#define AUDIT "libgpucache_nvrtc_audit.so"

extern char **environ;

static char **python;    /* the words that start gpucache in Python, before its arguments */
static char **arguments; /* of gpucache */
static char roots[PATH_MAX * 2]; /* the user's and the system's, as the libraries read them */
static char folder[SOCKET_CAP], library[PATH_MAX + 128];
static char file[PATH_MAX]; /* that the cache is in, if it is */
static char unpacked[SOCKET_CAP]; /* the directory with its root */
static int is_quiet, unpacked_lock = -1;
static int listener = -1, lock = -1;
static pid_t command = -1;

static int is_afresh; /* Python may start this program again */

/* Python's gpucache in this process; returns only if it cannot be started. */
static void to_python(void) {
    size_t before = 0, after = 0;
    while (python[before]) before++;
    while (arguments[after]) after++;
    char **words = calloc(before + after + 1, sizeof *words), state[SOCKET_CAP + 64];
    if (!words) return;
    memcpy(words, python, before * sizeof *words);
    memcpy(words + before, arguments, after * sizeof *words);
    snprintf(state, sizeof state, "%d:%d:%d:%s", (int)command, listener, lock, command < 0 ? "" : folder);
    if (!is_afresh) setenv("GPUCACHE_RUN_ADOPTED", state, 1);
    if (*unpacked && command >= 0) {
        snprintf(state, sizeof state, "%d:%s", unpacked_lock, unpacked);
        setenv("GPUCACHE_RUN_UNPACKED", state, 1), setenv("GPUCACHE_FILE", file, 1);
        if (unpacked_lock >= 0) fcntl(unpacked_lock, F_SETFD, 0);
    }
    if (listener >= 0) fcntl(listener, F_SETFD, 0);
    if (lock >= 0) fcntl(lock, F_SETFD, 0);
    execvp(words[0], words);
    fprintf(stderr, "gpucache: cannot start %s: %s; %s\n", words[0], strerror(errno),
            errno == EACCES ? "let this user run the Python that its first line names" : "install gpucache again");
    free(words);
}

static const char *value_of(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Take the file that the cache is in; whether it is one. */
static int takes_file(const char *given) {
    if (!given || !*given || *given == '~') return 0;
    if (*given != '/' && !getcwd(file, sizeof file)) return 0;
    size_t at = *given == '/' ? 0 : strlen(file);
    return snprintf(file + at, sizeof file - at, at ? "/%s" : "%s", given) < (int)(sizeof file - at);
}

/* The command, after its `--`, if nothing but the command line says how to run it, and all three streams are open. */
static char **plain_command(char **words) {
    static const char *const plain[] = {
        "DIR=", "SYSTEM_DIRS=", "REMOTE=", "REMOTE_WRITE=", "REMOTE_TIMEOUT_MS=", "TRUSTED_KEYS=", "SIGNING_KEY=",
        "RUN_TIMEOUT_MS=", "FILE=",
    };
    static const char option[] = "--cache-file";
    for (int each = 0; each < 3; each++)
        if (fcntl(each, F_GETFD) < 0) return NULL;
    if (value_of("PYTHONHOME")) return NULL; /* a Python that may not start does so before the command */
    for (char **each = environ; *each; each++) {
        size_t known = 0, count = sizeof plain / sizeof *plain;
        if (strncmp(*each, "GPUCACHE_", 9)) continue;
        while (known < count && strncmp(*each + 9, plain[known], strlen(plain[known]))) known++;
        if (known == count) return NULL;
    }
    if (!words[0] || strcmp(words[0], "run")) return NULL;
    while (*++words && strcmp(*words, "--")) {
        size_t name = strlen(option);
        if (!strcmp(*words, "-q") || !strcmp(*words, "--quiet"))
            is_quiet = 1;
        else if (*file || strncmp(*words, option, name) || ((*words)[name] && (*words)[name] != '='))
            return NULL;
        else if (!takes_file((*words)[name] ? *words + name + 1 : *++words))
            return NULL;
    }
    if (!*file && value_of("GPUCACHE_FILE") && !takes_file(value_of("GPUCACHE_FILE"))) return NULL;
    return *words && words[1] ? words + 1 : NULL;
}

/* Add a root, from the current directory if it is relative; whether it could be added. */
static int add_root(const char *root, int size) {
    size_t at = strlen(roots);
    if (memchr(root, ':', (size_t)size) || at + 2 >= sizeof roots) return 0;
    if (at) roots[at++] = ':', roots[at] = 0;
    if (*root != '/') {
        if (!getcwd(roots + at, sizeof roots - at - 1)) return 0;
        strcat(roots, "/"), at = strlen(roots);
    }
    return snprintf(roots + at, sizeof roots - at, "%.*s", size, root) < (int)(sizeof roots - at);
}

/* Find the roots as gpucache/settings.py does, the first as given or in the environment; whether they are such that
   libraries can read them. */
static int find_roots(const char *own) {
    char usual[PATH_MAX];
    const char *caches = value_of("XDG_CACHE_HOME"), *home = value_of("HOME");
    if (!own) own = value_of("GPUCACHE_DIR");
    if (!own) {
        if (caches ? *caches != '/' || strchr(caches, ' ') : !home || *home != '/') return 0;
        if (!caches && !strcmp(home, "/") && geteuid()) return 0; /* which means that there is no home */
        snprintf(usual, sizeof usual, "%s%s/gpucache", caches ? caches : home, caches ? "" : "/.cache");
        own = usual;
    }
    if (*own == '~' || !add_root(own, (int)strlen(own))) return 0;
    for (const char *at = value_of("GPUCACHE_SYSTEM_DIRS"); at && *at;) {
        int size = (int)strcspn(at, ":");
        if (size && (*at == '~' || !add_root(at, size))) return 0;
        at += size + (at[size] == ':');
    }
    return 1;
}

/* Find the directory with the libraries: this program's own, or that of the one package next to it. */
static int find_libraries(char *own) {
    static const char *const places[] = {"../lib/python3.*/*-packages", "../lib64/python3.*/*-packages", ".."};
    glob_t found;
    snprintf(library, sizeof library, "%s/" LAYER, own);
    if (!access(library, R_OK)) return !!strcpy(library, own);
    for (size_t each = 0; each < sizeof places / sizeof *places; each++) {
        snprintf(library, sizeof library, "%s/%s/gpucache/native/lib", own, places[each]);
        if (glob(library, 0, NULL, &found)) continue;
        int is_one = found.gl_pathc == 1; /* of several it is the script's Python that decides */
        if (is_one) snprintf(library, sizeof library, "%s", found.gl_pathv[0]);
        globfree(&found);
        return is_one;
    }
    return 0;
}

static int is_glibc_235(void) {
    char text[64] = "";
    int major, minor;
    confstr(_CS_GNU_LIBC_VERSION, text, sizeof text);
    return sscanf(text, "glibc %d.%d", &major, &minor) == 2 && (major > 2 || (major == 2 && minor >= 35));
}

/* Set a list of libraries to ours, then the user's others; whether ours is there. */
static int put_first(const char *variable, const char *name) {
    char *list, *others = strdup(getenv(variable) ? getenv(variable) : ""), *rest = others;
    if (!others || asprintf(&list, "%s/%s", library, name) < 0 || access(list, R_OK)) return 0;
    for (char *part; (part = strsep(&rest, ":"));) {
        const char *base = strrchr(part, '/');
        char *longer;
        if (!*part || !strcmp(base ? base + 1 : part, name)) continue;
        if (asprintf(&longer, "%s:%s", list, part) < 0) return 0;
        list = longer;
    }
    return !setenv(variable, list, 1);
}

/* GLIBC_TUNABLES with room for libraries of a program with an auditor: with_room() of gpucache/serve/environment.py. */
static void make_room(void) {
    const char *own = getenv("GLIBC_TUNABLES");
    char *others = strdup(own ? own : ""), *rest = others, *made = calloc(1, (own ? strlen(own) : 0) + 64);
    long room = ROOM;
    if (own) setenv("GPUCACHE_RUN_TUNABLES", own, 1);
    if (!others || !made) return;
    size_t end = 0;
    for (char *pair; (pair = strsep(&rest, ":"));) {
        char *value = strchr(pair, '=');
        if (!value || value == pair) continue;
        if (strncmp(pair, ROOM_NAME "=", strlen(ROOM_NAME) + 1))
            end += (size_t)sprintf(made + end, ":%s", pair);
        else if (strtol(value + 1, NULL, 0) > room)
            room = strtol(value + 1, NULL, 0);
    }
    char *whole;
    if (asprintf(&whole, ROOM_NAME "=%ld%s", room, made) > 0) setenv("GLIBC_TUNABLES", whole, 1);
}

/* The variables with which the command's compilers ask; whether there is a library for them. */
static int intercept(const char *socket_path) {
    char text[8192] = "\n", filters[64], *at;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text + 1, sizeof text - 2);
    if (fd >= 0) close(fd);
    setenv("GPUCACHE_RUN_SOCKET", socket_path, 1);
    setenv("GPUCACHE_RUN_ROOTS", roots, 1);
    if (*file) {
        char own[sizeof unpacked + sizeof "/root"];
        snprintf(own, sizeof own, "%s/root", unpacked);
        setenv("GPUCACHE_DIR", own, 1), unsetenv("GPUCACHE_FILE");
    }
    if (size > 0) {
        long mode = (at = strstr(text, "\nSeccomp:\t")) ? strtol(at + 10, NULL, 10) : -1;
        long count = (at = strstr(text, "\nSeccomp_filters:\t")) ? strtol(at + 18, NULL, 10) : -1;
        snprintf(filters, sizeof filters, "%ld:%ld", mode, count);
        setenv("GPUCACHE_RUN_FILTERS", filters, 1);
    }
    int layer = put_first("OPENCL_LAYERS", LAYER), audit = is_glibc_235() && put_first("LD_AUDIT", AUDIT);
    if (audit) make_room();
    return layer || audit;
}

/* Remove what is in an open directory but our mark, at most some levels deep. */
static void empty(int fd, int levels) {
    struct dirent *each;
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    if (!names && fd >= 0) close(fd);
    while (names && (each = readdir(names))) {
        if (!strcmp(each->d_name, MARK) || !strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
        if (!unlinkat(dirfd(names), each->d_name, 0) || !levels) continue;
        empty(openat(dirfd(names), each->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), levels - 1);
        unlinkat(dirfd(names), each->d_name, AT_REMOVEDIR);
    }
    if (names) closedir(names);
}

/* Remove a directory of ours with all that is in it; what is deeper than a root stays, with its mark, for Python. */
static void remove_folder(const char *place) {
    char mark[SOCKET_CAP + NAME_MAX + sizeof MARK + 1];
    empty(open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), 5);
    snprintf(mark, sizeof mark, "%s/" MARK, place);
    unlink(mark);
    if (rmdir(place)) close(open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int locked(const char *place) {
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) close(fd), fd = -1;
    return fd;
}

/* Remove directories that killed processes of this user left, as gpucache/host/scratch.py does. */
static void sweep(const char *parent) {
    char place[SOCKET_CAP + NAME_MAX], mark[sizeof place + sizeof MARK + 1];
    struct stat found;
    struct dirent *each;
    DIR *names = opendir(parent);
    while (names && (each = readdir(names))) {
        if (strncmp(each->d_name, "gpucache-", 9)) continue;
        snprintf(place, sizeof place, "%s/%s", parent, each->d_name);
        snprintf(mark, sizeof mark, "%s/" MARK, place);
        if (lstat(place, &found) || found.st_uid != geteuid() || lstat(mark, &found) || !S_ISREG(found.st_mode)) continue;
        int fd = locked(place);
        if (fd < 0) continue;
        remove_folder(place);
        close(fd);
    }
    if (names) closedir(names);
}

static int made_file(const char *place, const char *name, int flags, const char *text) {
    char path[sizeof roots + 32];
    snprintf(path, sizeof path, "%s/%s", place, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    int is_whole = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return is_whole;
}

/* Make a directory of our own below a place, with its lock; whether that was possible. */
static int made_scratch(const char *parent, char place[SOCKET_CAP], int *its_lock) {
    int size = parent ? snprintf(place, SOCKET_CAP, "%s/gpucache-run-XXXXXX", parent) : 0;
    if (!size || size + 2 > SOCKET_CAP) return 0;
    sweep(parent);
    if (!mkdtemp(place)) return 0;
    if ((*its_lock = locked(place)) >= 0) made_file(place, MARK, 0, "");
    return 1;
}

/* Unpack the file that the cache is in, in memory if there is room; whether its root is there. */
static int unpacks(const char *usual) {
    const char *const parents[] = {"/dev/shm", usual, "/tmp"};
    char root[sizeof unpacked + sizeof "/root"];
    for (size_t each = 0; each < sizeof parents / sizeof *parents; each++) {
        if (!made_scratch(parents[each], unpacked, &unpacked_lock)) continue;
        snprintf(root, sizeof root, "%s/root", unpacked);
        return root_file_unpacks(file, root) && find_roots(root);
    }
    return !!(*unpacked = 0);
}

/* Listen at a socket in a directory of our own below a place; whether that was possible. */
static int listens(const char *parent) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!made_scratch(parent, folder, &lock)) return 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made_file(folder, "notes", O_EXCL, "") && listener >= 0 &&
        !bind(listener, (struct sockaddr *)&address, sizeof address) && !listen(listener, 128))
        return 1;
    remove_folder(folder);
    if (lock >= 0) close(lock);
    if (listener >= 0) close(listener);
    lock = listener = -1;
    return 0;
}

/* Start the command with its environment and the mask of signals from before; whether it has been started. */
static int starts(char **words, const sigset_t *before) {
    posix_spawnattr_t how;
    sigset_t ignored; /* by Python */
    size_t count = 0;
    while (environ[count]) count++;
    char **own = malloc((count + 1) * sizeof *own), place[SOCKET_CAP + 2];
    if (!own || posix_spawnattr_init(&how)) return 0;
    memcpy(own, environ, (count + 1) * sizeof *own);
    sigemptyset(&ignored), sigaddset(&ignored, SIGPIPE), sigaddset(&ignored, SIGXFSZ);
    posix_spawnattr_setsigmask(&how, before);
    posix_spawnattr_setsigdefault(&how, &ignored);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    snprintf(place, sizeof place, "%s/s", folder);
    int started = intercept(place) && !posix_spawnp(&command, words[0], NULL, &how, words, environ);
    environ = own;
    if (!started) command = -1;
    return started;
}

/* Pass signals on until the command has ended, which leaves it to be waited for, or until a question comes. */
static int has_ended(int signals) {
    for (;;) {
        siginfo_t found = {0};
        if (waitid(P_PID, (id_t)command, &found, WEXITED | WSTOPPED | WNOHANG | WNOWAIT)) return 0;
        if (found.si_pid && found.si_code != CLD_STOPPED) return 1;
        if (found.si_pid) {
            waitid(P_PID, (id_t)command, &found, WSTOPPED | WNOHANG);
            if (found.si_status == SIGTSTP || found.si_status == SIGTTIN || found.si_status == SIGTTOU)
                kill(getpid(), SIGSTOP); /* the shell has both go on */
            continue;
        }
        struct pollfd asked[] = {{signals, POLLIN, 0}, {listener, POLLIN, 0}};
        struct signalfd_siginfo came;
        if (poll(asked, 2, -1) < 0 && errno != EINTR) return 0;
        if (asked[0].revents && read(signals, &came, sizeof came) == sizeof came) {
            if (came.ssi_signo != SIGCHLD && came.ssi_code != SI_KERNEL) kill(command, (int)came.ssi_signo);
        } else if (asked[1].revents) {
            return 0;
        }
    }
}

struct times {
    unsigned long long begun, ended;
};

static int is_later(const void *one, const void *other) {
    const struct times *left = one, *right = other;
    return left->begun > right->begun ? 1 : left->begun < right->begun ? -1 : 0;
}

/* What the command's libraries noted. */
static struct {
    unsigned long long hits, binaries, build_ns, saved_ns, ahead_ns;
    int loaded;
} noted;

/* Read the notes; 0 if they are more than hits, or not as expected. */
static int read_notes(void) {
    char path[SOCKET_CAP + 8], *text, *end, *next;
    struct stat status;
    snprintf(path, sizeof path, "%s/notes", folder);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size > NOTES_CAP) return 0;
    size_t size = (size_t)status.st_size, lines = 0;
    text = malloc(size + 1);
    if (!text || read(fd, text, size) != (ssize_t)size) return 0;
    close(fd);
    for (size_t at = 0; at < size; at++) lines += text[at] == '\n';
    struct times *hits = malloc((lines + 1) * sizeof *hits);
    text[size] = 0, end = text + size;
    for (char *line = text; hits && line < end; line = next) {
        unsigned long long took, saved;
        struct times *hit = hits + noted.hits;
        if (!(next = strchr(line, '\n'))) return 0;
        *next++ = 0;
        if (!strcmp(line, "loaded")) {
            noted.loaded = 1;
        } else if (!strcmp(line, "binary")) {
            noted.binaries++;
        } else if ((!strncmp(line, "hit ", 4) || !strncmp(line, "late ", 5)) &&
                   sscanf(strchr(line, ' '), "%llu %llu %llu\t", &hit->begun, &took, &saved) == 3) {
            hit->ended = hit->begun + took;
            noted.saved_ns += saved;
            if (*line == 'l') noted.ahead_ns += saved;
            noted.hits++;
        } else {
            return 0;
        }
    }
    if (!hits) return 0;
    qsort(hits, noted.hits, sizeof *hits, is_later);
    unsigned long long until = 0;
    for (struct times *each = hits; each < hits + noted.hits; each++) {
        unsigned long long from = each->begun > until ? each->begun : until;
        if (each->ended > from) noted.build_ns += each->ended - from, until = each->ended;
    }
    return 1;
}

/* Make a private root, as the store does. */
static int made_root(const char *root) {
    static const char *const below[] = {"", "/v1"};
    char path[sizeof roots + 16];
    snprintf(path, sizeof path, "%s", root);
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(path, 0700) && errno != EEXIST) return 0;
        *at = '/';
    }
    for (size_t each = 0; each < sizeof below / sizeof *below; each++) {
        snprintf(path, sizeof path, "%s%s", root, below[each]);
        if (mkdir(path, 0700)) return 0;
    }
    return made_file(root, TAG_NAME, O_EXCL, TAG_TEXT);
}

static const char *base_of(const char *path) {
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return *name ? name : path;
}

/* The name of a command, as command_name() of gpucache/answers/run_lines.py. */
static const char *name_of(char **words) {
    if (!strncmp(base_of(words[0]), "python", 6))
        for (char **word = words + 1; *word && strcmp(*word, "-c"); word++) {
            if (**word != '-') return base_of(*word);
            if ((!strcmp(*word, "-W") || !strcmp(*word, "-X")) && word[1]) word++; /* and its value */
        }
    return base_of(words[0]);
}

/* Append the command's hits to the journal of the first root; 0 if Python has to. */
static int is_counted(char **words) {
    char root[sizeof roots];
    struct stat status;
    snprintf(root, sizeof root, "%.*s", (int)strcspn(roots, ":"), roots);
    if (lstat(root, &status) && !made_root(root))
        return errno == EROFS || errno == EACCES || errno == EPERM; /* then nothing remains to be done */
    return journal_hits(root, name_of(words), noted.hits, noted.saved_ns);
}

/* A duration for people, as format_duration() of gpucache/units.py. */
static int put_duration(char *at, unsigned long long ns) {
    double ms = (double)ns / 1e6;
    if (ms < 1000) return sprintf(at, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
    if (ms < 60000) return sprintf(at, "%.2f s", ms / 1000);
    unsigned long long seconds = (unsigned long long)(ms / 1000 + 0.5);
    return sprintf(at, "%llu min %llu s", seconds / 60, seconds % 60);
}

/* The line about the hits, as counted() of gpucache/answers/run_lines.py, or why there are none. */
static void put_line(char *at, int code) {
    if (!noted.hits && !noted.loaded)
        sprintf(at, code == 127 ? LINE_NO_ROOM : code ? LINE_UNSEEN_CODE : LINE_UNSEEN, code);
    else if (!noted.hits && noted.binaries)
        sprintf(at, noted.binaries == 1 ? LINE_BINARY : LINE_BINARIES, (int)noted.binaries);
    else if (!noted.hits)
        sprintf(at, code ? LINE_NOTHING_CODE : LINE_NOTHING, code);
    if (!noted.hits) return;
    const char *s = noted.hits == 1 ? "" : "s";
    at += sprintf(at, "%llu build%s: %llu hit%s, 0 misses; ", noted.hits, s, noted.hits, s);
    at += put_duration(at, noted.build_ns);
    at += sprintf(at, !noted.saved_ns ? " in builds" : noted.ahead_ns ? " instead of up to " : " instead of ");
    if (noted.saved_ns) put_duration(at, noted.saved_ns);
}

/* Write the line, broken between words where stderr is a narrower terminal. */
static void say(int code) {
    char line[2048] = "gpucache: ";
    struct winsize terminal;
    put_line(line + strlen(line), code);
    if (*file) root_file_put(line + strlen(line), 512);
    if (!ioctl(2, TIOCGWINSZ, &terminal) && terminal.ws_col)
        for (char *begin = line, *at = line, *blank; (blank = strchr(at, ' ')); at = blank + 1)
            if ((size_t)(blank - begin) + strcspn(blank + 1, " ") >= terminal.ws_col) *blank = '\n', begin = blank + 1;
    strcat(line, "\n");
    if (write(2, line, strlen(line)) < 0) return; /* nobody reads it */
}

/* End by the signal that ended the command, without a core of ours. */
static void end_by(int number) {
    sigset_t one;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    signal(number, SIG_DFL);
    sigemptyset(&one), sigaddset(&one, number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(number);
    _exit(128 + number);
}

static void forget_unpacked(void) {
    if (*unpacked) remove_folder(unpacked);
    *unpacked = 0;
}

/* Run the command and end as it does; returns if Python has to do so, or to go on. */
static void run(char **words) {
    static const int passed_on[] = {PASSED_ON, SIGCHLD};
    sigset_t numbers, before;
    siginfo_t end = {0};
    char parent[PATH_MAX];
    const char *own = value_of("TMPDIR");
    umask(umask(077) & 077); /* one that takes permissions from the owner would lock us out */
    sigemptyset(&numbers);
    for (size_t each = 0; each < sizeof passed_on / sizeof *passed_on; each++) sigaddset(&numbers, passed_on[each]);
    signal(SIGPIPE, SIG_IGN), signal(SIGXFSZ, SIG_IGN), signal(SIGCHLD, SIG_DFL);
    if (own && !realpath(own, parent)) own = NULL;
    if (*file && !unpacks(own ? parent : NULL)) return forget_unpacked();
    if (!listens(own ? parent : NULL) && !listens("/tmp") && !listens("/dev/shm")) return forget_unpacked();
    sigprocmask(SIG_BLOCK, &numbers, &before);
    int signals = signalfd(-1, &numbers, SFD_CLOEXEC);
    if (signals < 0 || !starts(words, &before)) {
        remove_folder(folder), forget_unpacked();
        close(listener), close(lock), listener = lock = -1;
        sigprocmask(SIG_SETMASK, &before, NULL);
        return;
    }
    struct pollfd asked = {listener, POLLIN, 0};
    int ended = has_ended(signals);
    waitid(P_PID, (id_t)command, &end, WEXITED | WNOHANG | WNOWAIT);
    if (!ended || poll(&asked, 1, 0) || end.si_code != CLD_EXITED || !read_notes() ||
        (*file ? !root_file_is_current() : noted.hits && !is_counted(words))) {
        to_python();
        close(listener), listener = -1; /* programs that wait for a reply go on without one */
        if (!ended) has_ended(signals);
    } else if (!is_quiet) {
        say(end.si_status);
    }
    remove_folder(folder), forget_unpacked();
    waitid(P_PID, (id_t)command, &end, WEXITED);
    if (end.si_code != CLD_EXITED) end_by(end.si_status);
    _exit(end.si_status);
}

/* Whether there may be a settings file, in the places of gpucache/settings.py. */
static int has_settings(void) {
    char path[PATH_MAX];
    struct stat status;
    const char *places = value_of("XDG_CONFIG_HOME"), *home = value_of("HOME");
    if (!lstat("/etc/gpucache.toml", &status) || errno != ENOENT) return 1;
    if (!places && !home) return 0;
    snprintf(path, sizeof path, "%s%s/gpucache/settings.toml", places ? places : home, places ? "" : "/.config");
    return !lstat(path, &status) || (errno != ENOENT && errno != ENOTDIR);
}

int main(int count, char **words) {
    static char own[PATH_MAX], script[PATH_MAX + 24], *usual[] = {script, NULL};
    int begin = 1, by = 0;
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0 && !realpath((char *)getauxval(AT_EXECFN), own)) *own = 0;
    if (strrchr(own, '/')) *strrchr(own, '/') = 0;
    snprintf(script, sizeof script, "%s/gpucache-python", own);
    python = usual;
    if (count > 1 && sscanf(words[1], "--by=%d", &by) == 1 && by > 0 && by < count - 1) {
        python = calloc((size_t)by + 1, sizeof *python);
        if (!python) return 1;
        memcpy(python, words + 2, (size_t)by * sizeof *python);
        begin = 2 + by;
    }
    arguments = words + begin;
    is_afresh = !by && has_settings();
    if (is_afresh) to_python(); /* which knows what is in them, and starts this program again */
    char **words_of_command = plain_command(arguments);
    if (words_of_command && find_libraries(own) && (*file || find_roots(NULL))) run(words_of_command);
    to_python();
    return 127;
}
