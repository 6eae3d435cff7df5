/* NVRTC, or hipRTC, as programs find it under gpucache: cached compiles are served, all else is its own.

   Both have one interface under two prefixes, and differ in the results of a compile: what is said here of NVRTC
   goes for hipRTC too, whose log has no NUL.

   nvrtc_audit.c has the loader take this library for NVRTC and NVRTC itself for its dependency, so that every
   function that the shim lacks is found there. Programs keep the handles that NVRTC made. A compile that is
   answered by the cache is not made, and the answer has all its results. As with NVRTC each compile, even one
   that fails, has its own log and PTX; a cubin, LTO-IR, OptiX IR and lowered names stay until a compile gives
   others. In any doubt the program gets NVRTC's result.

   Built once for each library and major version with RTC (nvrtc, hiprtc, amdhip64) and MAJOR, and with IS_HIP for
   the latter two. Keeps no lock, because a fork could leave it locked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stopwatch.h"
#include "wire.h"

#define EXPORTED __attribute__((visibility("default")))
#define TEXT_(value) #value
#define TEXT(value) TEXT_(value)

typedef struct program_of_rtc *Program;
typedef int Result;
enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6, NO_NAMES_AFTER_COMPILATION = 8,
       NO_NAMES_BEFORE_COMPILATION = 9, NAME_NOT_VALID = 10, INTERNAL_ERROR = 11 };

#if IS_HIP
#define API(name) hiprtc##name
#define OURS "gpucache_program.hip" /* the name of a source in gpucache's own library, which looks it up */
#define LOG_END 0 /* bytes of a log after its text */
#define RESULTS(each) each(CODE, Code) each(BITCODE, Bitcode)
enum kind { LOG, CODE, BITCODE, KINDS };
static const char *const kind_names[KINDS] = {"log", "code-object", "llvm-bitcode"};
#else
#define API(name) nvrtc##name
#define OURS "/nonexistent/gpucache/program.cu"
#define LOG_END 1
#define RESULTS(each) each(PTX, PTX) each(CUBIN, CUBIN) each(LTOIR, LTOIR) each(OPTIXIR, OptiXIR)
enum kind { LOG, PTX, CUBIN, LTOIR, OPTIXIR, KINDS }; /* from CUBIN on they stay from one compile to the next */
static const char *const kind_names[KINDS] = {"log", "ptx", "cubin", "ltoir", "optixir"};
#endif
enum { FIRST = LOG + 1 };

/* The functions that this file calls; a program that calls one which its library lacks gets an error. */
#define FUNCTIONS(each)                                                                                            \
    each(Version, (int *, int *))                                                                                  \
    each(CreateProgram,                                                                                            \
         (Program *, const char *, const char *, int, const char *const *, const char *const *))                   \
    each(DestroyProgram, (Program *))                                                                              \
    each(AddNameExpression, (Program, const char *))                                                               \
    each(SetFlowCallback, (Program, int (*)(void *, void *), void *))                                              \
    each(CompileProgram, (Program, int, const char *const *))                                                      \
    each(GetLoweredName, (Program, const char *, const char **))                                                   \
    GETTERS(each, ProgramLog) GETTERS(each, CUBIN) GETTERS(each, PTX) GETTERS(each, LTOIR)                         \
    GETTERS(each, OptiXIR) GETTERS(each, NVVM) GETTERS(each, Code) GETTERS(each, Bitcode)
#define GETTERS(each, name)                                                                                        \
    each(Get##name##Size, (Program, size_t *)) each(Get##name, (Program, char *))
#define DECLARE(name, parameters) Result(*name) parameters;
static struct { FUNCTIONS(DECLARE) } real;
static const char *real_path = "";
#define CALL(name, ...) (real.name ? real.name(__VA_ARGS__) : INTERNAL_ERROR)

__attribute__((constructor)) static void begin(void) {
    void *library = dlopen("gpucache-" TEXT(RTC) ".so." TEXT(MAJOR), RTLD_LAZY | RTLD_NOLOAD);
    struct link_map *map;
    if (!library) return;
    if (!dlinfo(library, RTLD_DI_LINKMAP, &map)) real_path = map->l_name;
#define FIND(name, parameters) real.name = (Result(*) parameters)dlsym(library, TEXT(API(name)));
    FUNCTIONS(FIND)
    dlerror(); /* a failed lookup must not reach the program that loads this */
    wire_begin();
    wire_note("loaded");
}

/* ---- the state of a program ---- */

struct texts {
    char **at;
    size_t count;
};

struct program {
    char *source, *name;
    struct texts headers, expressions; /* each header's name is followed by its content */
    int followed;                      /* by a callback, which a hit would not call */
    int answered;                      /* whether any compile of it was */
    struct wire_bytes artifacts[KINDS]; /* copies of an answer's results; NULL if NVRTC is to be called */
    struct texts lowered; /* each expression is followed by its name, which a program may keep; the latest last */
    int names;            /* how many of these texts are the names that count; 0 if NVRTC is to be called */
};

/* Programs by the handle that NVRTC gave. Slots are used again and never freed, so that no thread waits. */
struct slot {
    _Atomic(Program) handle;
    struct program *program;
    struct slot *next;
};
static struct slot *_Atomic slots;
static char taken; /* its address is the handle of a slot that is being filled */

static struct slot *slot_of(Program handle) {
    struct slot *slot = handle ? atomic_load(&slots) : NULL;
    while (slot && atomic_load(&slot->handle) != handle) slot = slot->next;
    return slot;
}

static struct program *program_of(Program handle) {
    struct slot *slot = slot_of(handle);
    return slot ? slot->program : NULL;
}

static int add(struct texts *texts, const char *text, size_t size) {
    char **more = realloc(texts->at, (texts->count + 1) * sizeof *more);
    if (!more) return 0;
    texts->at = more;
    return (more[texts->count] = strndup(text, size)) && ++texts->count;
}

static void clear(struct texts *texts) {
    while (texts->count) free(texts->at[--texts->count]);
    free(texts->at);
    *texts = (struct texts){0};
}

/* Ask NVRTC for some kinds again. */
static void drop(struct program *program, int first, int end) {
    for (int kind = first; kind < end; kind++) {
        free((void *)program->artifacts[kind].at);
        program->artifacts[kind] = (struct wire_bytes){NULL, 0};
    }
}

static void forget(struct program *program) {
    drop(program, LOG, KINDS);
    clear(&program->headers);
    clear(&program->expressions);
    clear(&program->lowered);
    free(program->source);
    free(program->name);
    free(program);
}

static void remember(Program handle, struct program *program) {
    for (struct slot *slot = atomic_load(&slots); slot; slot = slot->next) {
        Program none = NULL;
        if (!atomic_compare_exchange_strong(&slot->handle, &none, (Program)&taken)) continue;
        slot->program = program;
        atomic_store(&slot->handle, handle);
        return;
    }
    struct slot *slot = malloc(sizeof *slot);
    if (!slot) return forget(program); /* NVRTC's own program serves as well */
    slot->program = program;
    slot->next = atomic_load(&slots);
    atomic_init(&slot->handle, handle);
    while (!atomic_compare_exchange_weak(&slots, &slot->next, slot)) continue;
}

/* ---- asking ---- */

struct request {
    struct wire_bytes *fields;
    size_t count, room;
};

/* Puts all of them if there was room, else none. */
static void put(struct request *request, struct wire_bytes field) {
    if (request->count < request->room) request->fields[request->count++] = field;
}

static void put_texts(struct request *request, const char *const *texts, size_t count, size_t each, char *digits) {
    put(request, wire_number(count / each, digits));
    for (size_t i = 0; i < count; i++) put(request, wire_text(texts[i]));
}

static int ask(struct program *program, int count, const char *const *options, struct wire_reply *reply) {
    struct texts *headers = &program->headers, *expressions = &program->expressions;
    struct request request = {.room = 10 + headers->count + (size_t)count + expressions->count};
    char digits[3][WIRE_NUMBER_SIZE], version[4 + 2 * WIRE_NUMBER_SIZE], folder[PATH_MAX];
    int major = 0, minor = 0;
    wire_begin();
    if (!wire_asks() || CALL(Version, &major, &minor)) return 0;
    if (!getcwd(folder, sizeof folder)) *folder = 0; /* it is gone */
    struct wire_bytes environment = wire_environment();
    request.fields = environment.at ? malloc(request.room * sizeof *request.fields) : NULL;
    if (!request.fields) request.room = 0;
    snprintf(version, sizeof version, "%s%d.%d", IS_HIP ? "hip " : "", major, minor);
    put(&request, wire_text(NULL));
    put(&request, wire_text(folder));
    put(&request, environment);
    put(&request, wire_text(version));
    put(&request, wire_text(real_path));
    put(&request, wire_text(program->name));
    put(&request, wire_text(program->source));
    put_texts(&request, (const char *const *)headers->at, headers->count, 2, digits[0]);
    put_texts(&request, options, (size_t)count, 1, digits[1]);
    put_texts(&request, (const char *const *)expressions->at, expressions->count, 1, digits[2]);
    int answered = request.room && wire_ask(WIRE_COMPILE, request.fields, request.count, reply);
    free(request.fields);
    free((void *)environment.at);
    return answered;
}

static size_t number_of(struct wire_bytes field) {
    char digits[WIRE_NUMBER_SIZE] = {0};
    if (field.size < sizeof digits) memcpy(digits, field.at, field.size);
    return strtoul(digits, NULL, 10);
}

static int copy(struct wire_bytes *to, struct wire_bytes from, size_t more) {
    char *bytes = calloc(1, from.size + more);
    if (!bytes) return 0;
    memcpy(bytes, from.at, from.size);
    free((void *)to->at);
    *to = (struct wire_bytes){bytes, from.size + more};
    return 1;
}

/* Read an answer of the cache into copies and lowered names: 1, or 0 if it does not fit such a program. A log
   comes without its NUL. */
static int read_answer(struct program *program, struct wire_reply *reply, struct wire_bytes got[KINDS]) {
    struct wire_bytes token, log, count, name, value;
    size_t before = program->lowered.count;
    if (!wire_next(reply, &token) || !wire_next(reply, &log) || !wire_next(reply, &count)) return 0;
    if (!copy(&got[LOG], log, LOG_END) || (!IS_HIP && !copy(&got[FIRST], (struct wire_bytes){"", 0}, 1))) return 0;
    for (size_t left = number_of(count); left; left--) {
        if (!wire_next(reply, &name) || !wire_next(reply, &value)) return 0;
        for (int kind = FIRST; kind < KINDS; kind++)
            if (name.size == strlen(kind_names[kind]) && !memcmp(name.at, kind_names[kind], name.size) &&
                !copy(&got[kind], value, 0))
                return 0;
    }
    if (!wire_next(reply, &count)) return 0;
    for (size_t left = number_of(count); left; left--) {
        if (!wire_next(reply, &name) || !wire_next(reply, &value)) return 0;
        if (!add(&program->lowered, name.at, name.size) || !add(&program->lowered, value.at, value.size)) return 0;
    }
    return program->lowered.count == before + 2 * program->expressions.count && !wire_next(reply, &value);
}

static int serve(struct program *program, struct wire_reply *reply) {
    struct wire_bytes got[KINDS] = {{NULL, 0}};
    size_t before = program->lowered.count;
    int sound = read_answer(program, reply, got);
    for (int kind = LOG; kind < KINDS; kind++) {
        if (!sound) free((void *)got[kind].at);
        if (!sound || !got[kind].at) continue;
        drop(program, kind, kind + 1);
        program->artifacts[kind] = got[kind];
    }
    while (!sound && program->lowered.count > before) free(program->lowered.at[--program->lowered.count]);
    if (!sound) return 0;
    program->answered = 1;
    program->names = (int)(program->lowered.count - before);
    return 1;
}

/* NVRTC's result of one kind, in our own memory; empty if it has none. */
static struct wire_bytes fetch(Program handle, Result (*size_of)(Program, size_t *),
                               Result (*get)(Program, char *)) {
    size_t size = 0;
    char *bytes = size_of && get && !size_of(handle, &size) && size > 1 ? malloc(size) : NULL;
    if (bytes && !get(handle, bytes)) return (struct wire_bytes){bytes, size};
    free(bytes);
    return (struct wire_bytes){NULL, 0};
}

static void tell(Program handle, struct program *program, struct wire_bytes token, enum wire_wanted wanted,
                 Result result, uint64_t ns) {
    struct texts *expressions = &program->expressions;
    struct request request = {.room = 6 + 2 * KINDS + 2 * expressions->count};
    char digits[4][WIRE_NUMBER_SIZE];
    struct wire_bytes got[KINDS] = {fetch(handle, real.GetProgramLogSize, real.GetProgramLog)};
#define FETCH(kind, name)                                                                                          \
    if (wanted && !result) got[kind] = fetch(handle, real.Get##name##Size, real.Get##name);
    RESULTS(FETCH)
    request.fields = malloc(request.room * sizeof *request.fields);
    if (!request.fields) goto done;
    put(&request, token);
    put(&request, wire_number((uint64_t)result, digits[0]));
    put(&request, wire_number(ns, digits[1]));
    put(&request, (struct wire_bytes){got[LOG].at, got[LOG].size ? got[LOG].size - LOG_END : 0});
    size_t count = 0;
    for (int kind = FIRST; kind < KINDS; kind++) count += got[kind].size > 0;
    put(&request, wire_number(count, digits[2]));
    for (int kind = FIRST; kind < KINDS; kind++) {
        if (!got[kind].size) continue;
        put(&request, wire_text(kind_names[kind]));
        put(&request, got[kind]);
    }
    size_t known = 0;
    const char *lowered;
    struct wire_bytes *number = request.fields + request.count;
    put(&request, wire_number(0, digits[3]));
    for (size_t i = 0; wanted && !result && i < expressions->count; i++) {
        if (CALL(GetLoweredName, handle, expressions->at[i], &lowered)) continue;
        put(&request, wire_text(expressions->at[i]));
        put(&request, wire_text(lowered));
        known++;
    }
    *number = wire_number(known, digits[3]);
    wire_tell(WIRE_COMPILED, request.fields, request.count, wanted == WIRE_WANTED_AND_WAITS);
    free(request.fields);
done:
    for (int kind = LOG; kind < KINDS; kind++) free((void *)got[kind].at);
}

/* ---- functions for programs ---- */

EXPORTED Result API(CreateProgram)(Program *handle, const char *source, const char *name, int count,
                                        const char *const *headers, const char *const *names) {
    Result result = CALL(CreateProgram, handle, source, name, count, headers, names);
    struct program *program = result ? NULL : calloc(1, sizeof *program);
    if (!program) return result;
    int kept = (program->source = strdup(source)) && (program->name = strdup(name ? name : ""));
    for (int i = 0; kept && i < count; i++)
        kept = headers[i] && names[i] && add(&program->headers, names[i], strlen(names[i])) &&
               add(&program->headers, headers[i], strlen(headers[i]));
    if (kept)
        remember(*handle, program);
    else
        forget(program);
    return result;
}

EXPORTED Result API(DestroyProgram)(Program *handle) {
    struct slot *slot = handle ? slot_of(*handle) : NULL;
    if (slot) {
        forget(slot->program);
        atomic_store(&slot->handle, NULL);
    }
    return CALL(DestroyProgram, handle);
}

EXPORTED Result API(AddNameExpression)(Program handle, const char *expression) {
    struct program *program = program_of(handle);
    if (!IS_HIP && program && program->answered && expression) return NO_NAMES_AFTER_COMPILATION;
    Result result = CALL(AddNameExpression, handle, expression);
    if (program && !result && !add(&program->expressions, expression, strlen(expression))) program->followed = 1;
    return result;
}

#if !IS_HIP && MAJOR > 12 /* some of version 12 have no such function, and are checked for it */
EXPORTED Result API(SetFlowCallback)(Program handle, int (*callback)(void *, void *), void *payload) {
    struct program *program = program_of(handle);
    if (program) program->followed = 1;
    return CALL(SetFlowCallback, handle, callback, payload);
}
#endif

/* Have NVRTC compile: its results replace earlier answers. With PTX comes a cubin or nothing else; hipRTC's all go. */
static Result compile(Program handle, struct program *program, int count, const char *const *options) {
    Result result = CALL(CompileProgram, handle, count, options);
    if (!program || !program->answered) return result;
#if IS_HIP
    drop(program, LOG, KINDS);
    program->names = 0;
#else
    size_t ptx = 0, size = 0;
    drop(program, LOG, CUBIN);
    if (result || CALL(GetPTXSize, handle, &ptx)) return result;
    program->names = 0;
    if (ptx > 1 && !CALL(GetCUBINSize, handle, &size) && size) drop(program, CUBIN, LTOIR);
    if (ptx <= 1 && !CALL(GetLTOIRSize, handle, &size) && size) drop(program, LTOIR, OPTIXIR);
    if (ptx <= 1 && !CALL(GetOptiXIRSize, handle, &size) && size) drop(program, OPTIXIR, KINDS);
#endif
    return result;
}

/* Make a compile fail that GPUCACHE_REQUIRE does not allow. */
static void refuse(struct program *program, char *log) {
    drop(program, LOG, IS_HIP ? (int)KINDS : FIRST + 1);
    program->artifacts[LOG] = (struct wire_bytes){log, log ? strlen(log) + LOG_END : 0};
    program->answered = 1;
}

EXPORTED Result API(CompileProgram)(Program handle, int count, const char *const *options) {
    struct program *program = program_of(handle);
    struct wire_reply reply;
    struct wire_bytes token = {NULL, 0};
    uint64_t begun_ns = wire_now();
    int sane = count >= 0 && (options || !count);
    for (int i = 0; sane && i < count; i++) sane = options[i] != NULL;
    int asked = program && !program->followed && sane && ask(program, count, options, &reply);
    if (asked && reply.kind == WIRE_HIT && serve(program, &reply)) {
        wire_count(&reply, begun_ns, 0);
        wire_done(&reply);
        return SUCCESS;
    }
    if (sane && wire_requires() && !(program && !strcmp(program->name, OURS))) {
        if (program) refuse(program, wire_refusal(asked ? &reply : NULL));
        if (asked) wire_done(&reply);
        return COMPILATION;
    }
    if (!asked) return compile(handle, program, count, options);
    enum wire_wanted wanted = wire_next(&reply, &token) ? wire_next_wanted(&reply) : WIRE_NOT_WANTED;
    struct stopwatch timed = begin_compile();
    Result result = compile(handle, program, count, options);
    uint64_t took = end_compile(&timed);
    if (wanted && !result) wire_confirm(WIRE_COMPILE, &reply, token);
    if (token.size) tell(handle, program, token, wanted, result, took);
    wire_done(&reply);
    return result;
}

EXPORTED Result API(GetLoweredName)(Program handle, const char *expression, const char **lowered) {
    struct program *program = program_of(handle);
    for (int left = program && expression && lowered ? program->names : 0; left; left -= 2) {
        char **pair = program->lowered.at + program->lowered.count - left;
        if (strcmp(pair[0], expression)) continue;
        *lowered = pair[1];
        return SUCCESS;
    }
    Result result = CALL(GetLoweredName, handle, expression, lowered);
    return result == NO_NAMES_BEFORE_COMPILATION && program && program->answered ? NAME_NOT_VALID : result;
}

/* An answer's result of a kind; NULL if NVRTC is to be called. */
static const struct wire_bytes *answer_of(Program handle, enum kind kind) {
    const struct program *program = program_of(handle);
    return program && program->artifacts[kind].at ? &program->artifacts[kind] : NULL;
}

#define GETTER(name, kind)                                                                                         \
    EXPORTED Result API(Get##name##Size)(Program handle, size_t *size) {                                 \
        const struct wire_bytes *answer = answer_of(handle, kind);                                                 \
        if (!answer) return CALL(Get##name##Size, handle, size);                                              \
        if (size) *size = answer->size;                                                                            \
        return size ? SUCCESS : INVALID_INPUT;                                                                     \
    }                                                                                                              \
    EXPORTED Result API(Get##name)(Program handle, char *bytes) {                                        \
        const struct wire_bytes *answer = answer_of(handle, kind);                                                 \
        if (!answer) return CALL(Get##name, handle, bytes);                                                   \
        if (!bytes) return INVALID_INPUT;                                                                          \
        memcpy(bytes, answer->at, answer->size);                                                                   \
        return SUCCESS;                                                                                            \
    }
GETTER(ProgramLog, LOG)
#define RESULT(kind, name) GETTER(name, kind)
RESULTS(RESULT)
#if !IS_HIP && MAJOR == 12
GETTER(NVVM, LTOIR) /* its older name */
#endif
