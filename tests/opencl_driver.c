/* An OpenCL driver for machines that have none, whose compiler behaves as a source says: each word
   after "behave:" is done while that source is built. A source without such a word becomes a binary. CL_DRIVER_VERSION is the version of the driver; DRIVER_LOG names a file to
   which a line is added for each build: the process, and the first word, or "build".
   The order of the functions in the table is that of the ICD loader: cl_khr_icd. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int32_t Status;
typedef uint32_t Name;
enum { SUCCESS = 0, BUILD_FAILURE = -11, INVALID_VALUE = -30 };

static void *functions[160];
struct Object { void **functions; };
static struct Object platform = {functions}, device = {functions}, context = {functions};
struct Program { void **functions; int uses; const char *binary; size_t binary_bytes; size_t log_bytes; char source[]; };

static Status give(const void *value, size_t bytes, size_t room, void *to, size_t *needed) {
    if (needed) *needed = bytes;
    if (!to) return SUCCESS;
    if (room < bytes) return INVALID_VALUE;
    memcpy(to, value, bytes);
    return SUCCESS;
}

static Status give_text(const char *text, size_t room, void *to, size_t *needed) {
    return give(text, strlen(text) + 1, room, to, needed);
}

static const char *version(void) {
    const char *given = getenv("CL_DRIVER_VERSION");
    return given ? given : "1.0";
}

static Status platform_info(void *of, Name name, size_t room, void *to, size_t *needed) {
    switch (name) {
        case 0x0901: return give_text("OpenCL 1.2 stand-in", room, to, needed);
        case 0x0902: return give_text("Stand-in", room, to, needed);
        case 0x0903: return give_text("Nobody", room, to, needed);
        case 0x0904: return give_text("cl_khr_icd", room, to, needed);
        case 0x0920: return give_text("SI", room, to, needed);
        default: return INVALID_VALUE;
    }
}

static Status device_ids(void *of, uint64_t type, uint32_t room, void **to, uint32_t *number) {
    if (number) *number = 1;
    if (to) to[0] = &device;
    return SUCCESS;
}

static Status device_info(void *of, Name name, size_t room, void *to, size_t *needed) {
    static const uint64_t nothing[8], accelerator = 8;
    static const uint32_t yes = 1;
    static void *const owner = &platform;
    switch (name) {
        case 0x1000: return give(&accelerator, 8, room, to, needed);
        case 0x1028: return give(&yes, 4, room, to, needed); /* there is a compiler */
        case 0x102B: return give_text("Contrary", room, to, needed);
        case 0x102C: return give_text("Nobody", room, to, needed);
        case 0x102D: return give_text(version(), room, to, needed);
        case 0x102F: return give_text("OpenCL 1.2 stand-in", room, to, needed);
        case 0x103D: return give_text("OpenCL C 1.2", room, to, needed);
        case 0x1030: return give_text("", room, to, needed);
        case 0x1031: return give(&owner, sizeof owner, room, to, needed);
        default: return give(nothing, 8, room, to, needed);
    }
}

static void *create_context(void *properties, uint32_t number, void **devices, void *call, void *with, Status *status) {
    *status = SUCCESS;
    return &context;
}

static Status context_info(void *of, Name name, size_t room, void *to, size_t *needed) {
    static void *const only = &device;
    static const uint32_t one = 1;
    if (name == 0x1081) return give(&only, sizeof only, room, to, needed);
    if (name == 0x1083) return give(&one, 4, room, to, needed);
    return give(&one, 0, room, to, needed);
}

static Status count(struct Object *of) { return SUCCESS; }

static void *create_program(void *in, uint32_t number, const char **texts, const size_t *lengths, Status *status) {
    size_t bytes = lengths && lengths[0] ? lengths[0] : strlen(texts[0]);
    struct Program *made = calloc(1, sizeof *made + bytes + 1);
    made->functions = functions;
    memcpy(made->source, texts[0], bytes);
    *status = SUCCESS;
    return made;
}

static void note(const char *word) {
    const char *path = getenv("DRIVER_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    fprintf(log, "%d %s\n", (int)getpid(), word);
    fclose(log);
}

static void stay(void) {
    note("child");
    for (;;) pause();
}

static void behave(struct Program *program, const char *word) {
    static char noise[1 << 16];
    memset(noise, 'x', sizeof noise);
    if (!strcmp(word, "segfault")) *(volatile int *)0 = 1;
    if (!strcmp(word, "abort")) abort();
    if (!strcmp(word, "overflow")) for (volatile char *at = (char *)&word;; at -= 4096) *at = 1;
    if (!strcmp(word, "hang")) for (;;) pause();
    if (!strcmp(word, "deaf")) { /* hangs, and ignores every signal that can be ignored */
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        for (;;) pause();
    }
    if (!strcmp(word, "spin")) for (volatile int turn = 0;; turn++) ;
    if (!strcmp(word, "eat")) for (;;) { /* until there is no memory, and then it dies of that */
        char *taken = malloc(1 << 24);
        memset(taken, 1, 1 << 24);
    }
    if (!strcmp(word, "leave")) exit(0);
    if (!strcmp(word, "leave-at-once")) _exit(0);
    if (!strcmp(word, "print")) for (int part = 0; part < 1 << 15; part++) { /* 2 GiB on each */
        if (write(1, noise, sizeof noise) < 0 || write(2, noise, sizeof noise) < 0) break;
    }
    if (!strcmp(word, "linger")) { note("begin"); usleep(300000); note("end"); }
    if (!strcmp(word, "close")) for (int number = 0; number < 1024; number++) close(number);
    if (!strcmp(word, "interrupt")) kill(getppid(), SIGINT);
    if (!strcmp(word, "fork") && !fork()) stay();
    if (!strcmp(word, "fork-and-crash")) { if (!fork()) stay(); usleep(1000); *(volatile int *)0 = 1; }
    if (!strcmp(word, "fork-and-hang")) { if (!fork()) stay(); for (;;) pause(); }
    if (!strcmp(word, "empty")) program->binary_bytes = 0;
    if (!strcmp(word, "garbage")) program->binary = "\177ELF\2\1\1garbage", program->binary_bytes = 14;
    if (!strcmp(word, "much")) { /* one GiB of zeros */
        program->binary_bytes = 1 << 30;
        program->binary = calloc(1, program->binary_bytes);
    }
    if (!strcmp(word, "talk")) program->log_bytes = 36 << 20;
}

static Status build(struct Program *program, uint32_t number, void **devices, const char *options, void *call, void *with) {
    char word[32] = "build";
    const char *at = strstr(program->source, "behave:");
    if (at) sscanf(at, "behave: %31s", word);
    note(word);
    program->binary = program->source;
    program->binary_bytes = strlen(program->source);
    for (; at; at = strstr(at + 1, "behave:"))
        if (sscanf(at, "behave: %31s", word) == 1) behave(program, word);
    if (call) ((void (*)(void *, void *))call)(program, with);
    return strstr(program->source, "behave: fail") ? BUILD_FAILURE : SUCCESS;
}

static Status program_info(struct Program *of, Name name, size_t room, void *to, size_t *needed) {
    static void *const only = &device, *const in = &context;
    static const uint32_t one = 1;
    switch (name) {
        case 0x1161: return give(&in, sizeof in, room, to, needed);
        case 0x1162: return give(&one, 4, room, to, needed);
        case 0x1163: return give(&only, sizeof only, room, to, needed);
        case 0x1164: return give_text(of->source, room, to, needed);
        case 0x1165: return give(&of->binary_bytes, sizeof(size_t), room, to, needed);
        case 0x1166:
            if (needed) *needed = sizeof(char *);
            if (to && ((char **)to)[0]) memcpy(((char **)to)[0], of->binary, of->binary_bytes);
            return SUCCESS;
        default: return INVALID_VALUE;
    }
}

static Status build_info(struct Program *of, void *on, Name name, size_t room, void *to, size_t *needed) {
    static const int32_t done = 0;
    if (name == 0x1181) return give(&done, 4, room, to, needed);
    if (name != 0x1183) return give_text("", room, to, needed);
    if (needed) *needed = of->log_bytes + 1;
    if (to) memset(to, 'w', of->log_bytes), ((char *)to)[of->log_bytes] = 0;
    return SUCCESS;
}

static Status platform_ids(uint32_t room, void **to, uint32_t *number) {
    if (number) *number = 1;
    if (to) to[0] = &platform;
    return SUCCESS;
}

static Status refuse(void) { return INVALID_VALUE; }

__attribute__((visibility("default"))) void *clGetExtensionFunctionAddress(const char *name) {
    if (!strcmp(name, "clGetPlatformInfo")) return (void *)platform_info;
    return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)platform_ids;
}

__attribute__((constructor)) static void fill(void) {
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++) functions[index] = refuse;
    functions[0] = platform_ids, functions[1] = platform_info;
    functions[2] = device_ids, functions[3] = device_info;
    functions[4] = create_context, functions[6] = functions[7] = count, functions[8] = context_info;
    functions[26] = create_program, functions[28] = functions[29] = count, functions[30] = build;
    functions[32] = program_info, functions[33] = build_info;
}
