#define _GNU_SOURCE
#include "opencl_builds.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stopwatch.h"
#include "wire.h"

#define BEFORE_FACTS 6 /* fields of a request before those about devices */
#define PLATFORM_FACTS 3
#define DEVICE_FACTS 4
#define FACTS (1 + PLATFORM_FACTS + DEVICE_FACTS) /* fields about each device, the driver's file first */
#define MAX_PLATFORMS 16

/* One build of one program, with its devices in the order of the program. */
struct build {
    struct program *program;
    cl_program handle;
    cl_context context;
    cl_uint total, count;
    cl_device_id all[MAX_DEVICES], devices[MAX_DEVICES];
    cl_uint places[MAX_DEVICES];
    uint64_t mask; /* the places as bits */
    const char *options;
    uint64_t constants; /* of a program from IL: the turn of its constants when it was asked for */
};

/* ---- queries to the driver ---- */

char *info_text(get_info get, void *of, cl_uint name) {
    size_t size = 0;
    if (get(of, name, 0, NULL, &size) != CL_SUCCESS || size > WIRE_MAX_BYTES) return NULL;
    char *text = calloc(1, size + 1);
    if (!text || !size || get(of, name, size, text, NULL) == CL_SUCCESS) return text;
    free(text);
    return NULL;
}

static char *build_log(cl_program program, cl_device_id device) {
    size_t size = 0;
    cl_int code = below.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    if (code != CL_SUCCESS || size > WIRE_MAX_BYTES) return NULL;
    char *log = calloc(1, size + 1);
    if (log && size) below.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    return log;
}

/* Which devices a build is for: false if the driver would refuse them, or if there are too many. */
static bool find_devices(struct build *build, cl_uint count, const cl_device_id *devices) {
    size_t size = 0;
    cl_program handle = build->handle;
    if (below.clGetProgramInfo(handle, CL_PROGRAM_CONTEXT, sizeof build->context, &build->context, NULL) ||
        below.clGetProgramInfo(handle, CL_PROGRAM_DEVICES, sizeof build->all, build->all, &size))
        return false;
    build->total = (cl_uint)(size / sizeof *build->all);
    if (!devices != !count || !build->total) return false;
    for (cl_uint i = 0; i < count; i++) {
        cl_uint place = 0;
        while (place < build->total && build->all[place] != devices[i]) place++;
        if (place == build->total) return false;
        build->mask |= UINT64_C(1) << place;
    }
    for (cl_uint place = 0; place < build->total; place++) {
        if (count && !(build->mask >> place & 1)) continue;
        build->mask |= UINT64_C(1) << place;
        build->places[build->count] = place;
        build->devices[build->count++] = build->all[place];
    }
    return true;
}

/* The file of the driver that a device belongs to. The first field of a handle leads to the driver's table of
   functions, which is in that file; a table that was put together at run time is in none. */
static char *driver_path(cl_device_id device) {
    Dl_info found;
    const void *table = *(const void *const *)device;
    return strdup(table && dladdr(table, &found) && found.dli_fname ? found.dli_fname : "");
}

/* Queried once, by one thread at a time: Intel's runtime puts each result into one string for all threads, so
   that a query while a command builds in several threads could break it. Platforms are never given back. */
static pthread_mutex_t describing = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_platform_id platform;
    char *facts[PLATFORM_FACTS];
} platforms[MAX_PLATFORMS];

static void begin_describing(void) { pthread_mutex_lock(&describing); }
static void end_describing(void) { pthread_mutex_unlock(&describing); }

void begin_builds(void) { pthread_atfork(begin_describing, end_describing, end_describing); }

/* The facts about a platform, which stay; false if the driver does not report them all. */
static bool describe_platform(cl_platform_id platform, struct wire_bytes fields[PLATFORM_FACTS]) {
    static const cl_uint names[] = {CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION};
    bool whole = false;
    begin_describing();
    int at = 0;
    while (at < MAX_PLATFORMS && platforms[at].platform && platforms[at].platform != platform) at++;
    if (at < MAX_PLATFORMS) {
        platforms[at].platform = platform;
        whole = true;
        for (int i = 0; i < PLATFORM_FACTS; i++) {
            char **fact = &platforms[at].facts[i];
            if (!*fact) *fact = info_text((get_info)below.clGetPlatformInfo, platform, names[i]);
            fields[i] = wire_text(*fact);
            whole = whole && *fact;
        }
    }
    end_describing();
    return whole;
}

static bool describe_device(cl_device_id device, struct wire_bytes fields[FACTS]) {
    static const cl_uint of_device[] = {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION,
                                        CL_DRIVER_VERSION};
    cl_platform_id platform;
    if (below.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL)) return false;
    if (!describe_platform(platform, fields + 1)) return false;
    fields[0] = wire_text(driver_path(device));
    bool whole = fields[0].at;
    struct wire_bytes *facts = fields + 1 + PLATFORM_FACTS;
    for (int i = 0; i < DEVICE_FACTS; i++) {
        facts[i] = wire_text(info_text((get_info)below.clGetDeviceInfo, device, of_device[i]));
        whole = whole && facts[i].at;
    }
    return whole;
}

/* The facts about a platform are not the request's own. */
static void free_description(struct wire_bytes fields[FACTS]) {
    free((void *)fields[0].at);
    for (int i = 1 + PLATFORM_FACTS; i < FACTS; i++) free((void *)fields[i].at);
}

/* The binaries of a program in the order of its devices. They are to be freed even if it returns false. */
static bool fetch_binaries(const struct build *build, unsigned char **binaries, size_t *sizes) {
    size_t all = 0, count = build->total;
    cl_program handle = build->handle;
    if (below.clGetProgramInfo(handle, CL_PROGRAM_BINARY_SIZES, sizeof *sizes * count, sizes, NULL))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] > WIRE_MAX_BYTES || (all += sizes[i]) > WIRE_MAX_BYTES) return false;
        if (sizes[i] && !(binaries[i] = malloc(sizes[i]))) return false;
    }
    return !below.clGetProgramInfo(handle, CL_PROGRAM_BINARIES, sizeof *binaries * count, binaries, NULL);
}

/* ---- messages to the server ---- */

void tell_other(const char *call, const char *options, cl_program of) {
    if (!wire_asks()) return;
    if (wire_has_roots() && !strcmp(call, "clCreateProgramWithBinary")) {
        wire_note("binary"); /* for which no server is started */
        return;
    }
    char pid[WIRE_NUMBER_SIZE];
    char *source = of ? info_text((get_info)below.clGetProgramInfo, of, CL_PROGRAM_SOURCE) : NULL;
    struct wire_bytes fields[] = {wire_number((uint64_t)getpid(), pid), wire_text(call), wire_text(options),
                                  wire_text(source)};
    wire_tell(WIRE_OTHER, fields, 4, 0);
    free(source);
}

/* Ask about a build, first the index unless already done; false without an answer. The source is the program's own,
   or the marks of a link's parts. */
static bool ask_about(enum wire_kind kind, struct build *build, const char *marks, bool only_server,
                      struct wire_reply *reply) {
    char count[WIRE_NUMBER_SIZE], folder[PATH_MAX];
    struct wire_bytes environment = wire_environment(), source;
    if (build->program && is_il(build->program))
        source.at = il_of(build->handle, &source.size, &build->constants);
    else
        source = wire_text(marks ? strdup(marks)
                                 : info_text((get_info)below.clGetProgramInfo, build->handle, CL_PROGRAM_SOURCE));
    struct wire_bytes fields[BEFORE_FACTS + MAX_DEVICES * FACTS] = {
        wire_text(NULL),
        wire_text(getcwd(folder, sizeof folder) ? folder : ""),
        environment,
        wire_text(build->options),
        source,
        wire_number(build->count, count),
    };
    struct wire_bytes *facts = fields + BEFORE_FACTS;
    bool whole = source.at && source.size && environment.at;
    for (cl_uint i = 0; whole && i < build->count; i++)
        whole = describe_device(build->devices[i], facts + i * FACTS);
    size_t all = BEFORE_FACTS + build->count * FACTS;
    bool answered = whole && (only_server ? wire_ask_server : wire_ask)(kind, fields, all, reply);
    for (cl_uint i = 0; i < build->count; i++) free_description(facts + i * FACTS);
    free((void *)environment.at);
    free((void *)source.at);
    return answered;
}

static struct wire_bytes error_number(cl_int code, char text[WIRE_NUMBER_SIZE]) {
    snprintf(text, WIRE_NUMBER_SIZE, "%d", code);
    return wire_text(text);
}

/* The reply takes the place of the one whose binaries were refused. */
static void tell_rejected(const char *token, cl_int code, struct wire_reply *reply) {
    char number[WIRE_NUMBER_SIZE];
    struct wire_bytes fields[] = {wire_text(token), error_number(code, number)}, first;
    wire_done(reply);
    if (wire_ask(WIRE_REJECTED, fields, 2, reply)) wire_next(reply, &first);
}

/* Of a served build only its end is new to the server. */
static void tell_served(const struct build *build, const char *token) {
    struct wire_bytes fields[3 + 2 * MAX_DEVICES] = {wire_text(token), wire_text("0"), wire_text("0")};
    if (*token && *token != WIRE_OF_INDEX) wire_tell(WIRE_BUILT, fields, 3 + 2 * build->count, 0);
}

static void tell_built(const struct build *build, const char *token, enum wire_wanted wanted, cl_int code,
                       uint64_t ns) {
    unsigned char *binaries[MAX_DEVICES] = {0};
    size_t sizes[MAX_DEVICES] = {0};
    char number[WIRE_NUMBER_SIZE], duration[WIRE_NUMBER_SIZE];
    struct wire_bytes fields[3 + 2 * MAX_DEVICES] = {
        wire_text(token), error_number(code, number), wire_number(ns, duration)};
    bool fetched = wanted && code == CL_SUCCESS && fetch_binaries(build, binaries, sizes);
    for (cl_uint i = 0; i < build->count; i++) {
        cl_uint place = build->places[i];
        if (fetched) fields[3 + 2 * i] = (struct wire_bytes){binaries[place], sizes[place]};
        if (build->handle) fields[4 + 2 * i] = wire_text(build_log(build->handle, build->devices[i]));
    }
    wire_tell(WIRE_BUILT, fields, 3 + 2 * build->count, wanted == WIRE_WANTED_AND_WAITS);
    for (cl_uint i = 0; i < build->count; i++) free((void *)fields[4 + 2 * i].at);
    for (cl_uint i = 0; i < build->total; i++) free(binaries[i]);
}

/* ---- A build that is served ---- */

static char *copy_field(struct wire_bytes field) { return strndup(field.at, field.size); }

/* A twin that has no driver's program yet; NULL without memory. */
static struct twin *new_twin(const struct build *build) {
    struct twin *twin = calloc(1, sizeof *twin);
    if (!twin) return NULL;
    twin->users = 1;
    twin->total = build->total;
    twin->count = build->count;
    memcpy(twin->devices, build->devices, sizeof twin->devices);
    memcpy(twin->places, build->places, sizeof twin->places);
    twin->options = strdup(build->options);
    if (twin->options) return twin;
    free_twin(twin);
    return NULL;
}

/* The binaries and logs of a reply. */
static bool read_hit(struct twin *twin, struct wire_reply *reply, const unsigned char **binaries,
                     size_t *sizes) {
    for (cl_uint i = 0; i < twin->count; i++) {
        struct wire_bytes binary, log;
        if (!wire_next(reply, &binary) || !wire_next(reply, &log)) {
            wire_stop(); /* a server with another count is not understood */
            return false;
        }
        binaries[i] = binary.at;
        sizes[i] = binary.size;
        if (!(twin->logs[i] = copy_field(log))) return false;
    }
    return true;
}

/* A twin made of the binaries in a reply. Without one, ``refused`` is the driver's error, or CL_SUCCESS where
   the driver was not asked. */
static struct twin *make_twin(const struct build *build, struct wire_reply *reply, cl_int *refused) {
    const unsigned char *binaries[MAX_DEVICES];
    size_t sizes[MAX_DEVICES];
    struct twin *twin = new_twin(build);
    *refused = CL_SUCCESS;
    if (!twin) return NULL;
    if (read_hit(twin, reply, binaries, sizes)) {
        twin->handle = below.clCreateProgramWithBinary(build->context, twin->count, twin->devices, sizes,
                                                       binaries, NULL, refused);
        if (twin->handle)
            *refused = below.clBuildProgram(twin->handle, twin->count, twin->devices, "", NULL, NULL);
        if (twin->handle && *refused == CL_SUCCESS) return twin;
    }
    free_twin(twin);
    return NULL;
}

/* The parts of a linked program, compiled and linked once more. */
static cl_program link_model(cl_context context, const struct twin *twin) {
    cl_program *parts = calloc(twin->inputs, sizeof *parts), model = NULL;
    cl_int code = parts ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
    for (cl_uint i = 0; code == CL_SUCCESS && i < twin->inputs; i++) {
        const char *source = twin->parts[i].source;
        parts[i] = below.clCreateProgramWithSource(context, 1, &source, NULL, &code);
        if (parts[i])
            code = below.clCompileProgram(parts[i], twin->count, twin->devices, twin->parts[i].options, 0, NULL, NULL,
                                          NULL, NULL);
    }
    if (code == CL_SUCCESS)
        model = below.clLinkProgram(context, twin->count, twin->devices, twin->options, twin->inputs, parts, NULL,
                                    NULL, &code);
    for (cl_uint i = 0; parts && i < twin->inputs; i++)
        if (parts[i]) below.clReleaseProgram(parts[i]);
    free(parts);
    if (code == CL_SUCCESS || !model) return model;
    below.clReleaseProgram(model);
    return NULL;
}

cl_program model_of(cl_program handle, struct twin *twin) {
    cl_program model = keep_model(twin, NULL);
    cl_context context;
    if (model) return model;
    if (below.clGetProgramInfo(handle, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL)) return NULL;
    if (twin->parts) return (model = link_model(context, twin)) ? keep_model(twin, model) : NULL;
    size_t size;
    char *il = bare_il_of(handle, &size);
    const char *source = il ? NULL : info_text((get_info)below.clGetProgramInfo, handle, CL_PROGRAM_SOURCE);
    if (il) model = below.clCreateProgramWithIL(context, il, size, NULL);
    if (il && model) set_constants(model, handle);
    free(il);
    if (source) model = below.clCreateProgramWithSource(context, 1, (const char **)&source, NULL, NULL);
    free((void *)source);
    if (!model) return NULL;
    if (!below.clBuildProgram(model, twin->count, twin->devices, twin->options, NULL, NULL))
        return keep_model(twin, model);
    below.clReleaseProgram(model);
    return NULL;
}

/* ---- A build from source ---- */

/* A build that is under way, until its end has been reported. */
struct report {
    atomic_int users; /* the asking program and, if there is one, the callback */
    atomic_bool told, ended;
    struct build build;
    char *token; /* NULL if the server needs no report of the build */
    enum wire_wanted wanted; /* the binaries too */
    struct wire_reply reply; /* of the server, with what this process has to see */
    struct stopwatch compile;
    cl_program_notify notify;
    void *data;
};

static void end_report(struct report *report) {
    if (atomic_fetch_sub(&report->users, 1) > 1) return;
    wire_done(&report->reply);
    free(report->token);
    free(report);
}

bool has_begun(cl_int code) { return code > CL_INVALID_VALUE; }

/* The work after the end of a build, once. */
static void finish_report(struct report *report, cl_int code) {
    if (atomic_exchange(&report->told, true)) return;
    uint64_t ns = end_compile(&report->compile);
    if (has_begun(code)) built_by_driver(report->build.program, report->build.mask);
    /* Intel's runtime does not rebuild a program that has failed once, and that is left to it. */
    if (code != CL_SUCCESS && has_begun(code)) stop_serving(report->build.program);
    if (constants_changed(report->build.program, report->build.constants)) report->wanted = WIRE_NOT_WANTED;
    if (report->wanted && code == CL_SUCCESS) wire_confirm(WIRE_BUILD, &report->reply, wire_text(report->token));
    if (report->token && wire_asks()) tell_built(&report->build, report->token, report->wanted, code, ns);
}

/* A driver may notify before it returns, afterwards or, if a build fails, not at all. */
static void end_build_once(struct report *report) {
    if (!atomic_exchange(&report->ended, true)) end_build(report->build.program);
}

/* Replaces the command's callback, so that the end of a build is seen that returns before it is done. */
static void on_built(cl_program handle, void *data) {
    struct report *report = data;
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < report->build.count; i++) {
        cl_build_status status = CL_BUILD_SUCCESS;
        below.clGetProgramBuildInfo(handle, report->build.devices[i], CL_PROGRAM_BUILD_STATUS, sizeof status,
                                    &status, NULL);
        if (status != CL_BUILD_SUCCESS) code = CL_BUILD_PROGRAM_FAILURE;
    }
    finish_report(report, code);
    end_build_once(report);
    report->notify(handle, report->data);
    end_report(report);
}

cl_int pass_on(cl_program handle, const struct asked *asked) {
    return below.clBuildProgram(handle, asked->count, asked->devices, asked->options, asked->notify,
                                asked->data);
}

/* Takes the reply. */
static cl_int build_from_source(const struct build *build, const struct asked *asked, const char *token,
                                enum wire_wanted wanted, struct wire_reply *reply, enum progress *progress) {
    struct report *report = calloc(1, sizeof *report);
    if (!report) return pass_on(build->handle, asked);
    report->build = *build;
    report->token = token && *token ? strdup(token) : NULL;
    report->wanted = wanted;
    report->reply = *reply;
    *reply = (struct wire_reply){.kind = WIRE_PASS};
    report->notify = asked->notify;
    report->data = asked->data;
    atomic_init(&report->users, asked->notify ? 2 : 1);
    report->compile = begin_compile();
    struct asked ours = *asked;
    if (asked->notify) {
        ours.notify = on_built;
        ours.data = report;
        *progress = UNDER_WAY;
    }
    cl_int code = pass_on(build->handle, &ours);
    if (!asked->notify || code != CL_SUCCESS) finish_report(report, code);
    if (asked->notify && code != CL_SUCCESS) end_build_once(report);
    end_report(report);
    return code;
}

/* ---- A build ---- */

void repeat_build(cl_program handle, const struct twin *twin) {
    below.clBuildProgram(handle, twin->count, twin->devices, twin->options, NULL, NULL);
}

/* If a build may not be served, an earlier served build is repeated in the driver's own program. */
static bool may_ask(struct program *program, const struct build *build) {
    if (may_serve(program, build->mask)) return wire_asks();
    struct twin *twin = borrow_twin(build->handle);
    if (twin && !twin->parts) {
        repeat_build(build->handle, twin);
        built_by_driver(program, 0);
    }
    give_back(twin);
    return false;
}

void refuse_build(struct program *program, char *log) {
    built_by_driver(program, 0); /* the earlier build is gone */
    set_refusal(program, log ? log : strdup(""));
}

static struct twin *ask_once(enum wire_kind kind, struct build *build, const char *marks, bool only_server,
                             struct wire_reply *reply, char **token) {
    uint64_t begun_ns = wire_now();
    cl_int refused = CL_SUCCESS;
    struct twin *twin = NULL;
    struct wire_bytes field;
    if (ask_about(kind, build, marks, only_server, reply) && reply->kind != WIRE_REFUSED && wire_next(reply, &field))
        *token = copy_field(field);
    if (build->program) set_token(build->program, *token);
    if (*token && reply->kind == WIRE_HIT) twin = make_twin(build, reply, &refused);
    if (twin) wire_count(reply, begun_ns, **token == WIRE_OF_INDEX);
    if (!twin && refused != CL_SUCCESS && !reply->note.at) tell_rejected(*token, refused, reply);
    return twin;
}

/* Ask for a build or a link, and make a twin of the answer; the token is to be freed. */
static struct twin *ask_twin(enum wire_kind kind, struct build *build, const char *marks,
                             struct wire_reply *reply, char **token) {
    struct twin *twin = ask_once(kind, build, marks, false, reply, token);
    if (twin || !reply->note.at) return twin;
    wire_done(reply); /* the driver refused an index's binary, which the server must know */
    free(*token);
    *token = NULL;
    return ask_once(kind, build, marks, true, reply, token);
}

cl_int build_known(struct program *program, cl_program handle, const struct asked *asked,
                   enum progress *progress) {
    struct build build = {
        .program = program, .handle = handle, .options = asked->options ? asked->options : ""};
    struct wire_reply reply = {.kind = WIRE_PASS};
    char *token = NULL;
    set_refusal(program, NULL);
    bool sound = find_devices(&build, asked->count, asked->devices) && (asked->notify || !asked->data);
    if (sound && twin_has_kernels(program)) return CL_INVALID_OPERATION;
    struct twin *twin = sound && may_ask(program, &build) ? ask_twin(WIRE_BUILD, &build, NULL, &reply, &token) : NULL;
    bool served = twin;
    if (served) set_twin(program, twin);
    enum wire_wanted wanted = token ? wire_next_wanted(&reply) : WIRE_NOT_WANTED;
    bool refused = sound && !served && wire_requires();
    if (refused) refuse_build(program, wire_refusal(&reply));
    *progress = served ? SERVED : ENDED;
    if (served) tell_served(&build, token);
    cl_int code = served    ? CL_SUCCESS
                  : refused ? CL_BUILD_PROGRAM_FAILURE
                            : build_from_source(&build, asked, token, wanted, &reply, progress);
    wire_done(&reply);
    free(token);
    return code;
}

/* ---- Programs that are compiled and linked apart ---- */

/* Whether what a part was compiled from is unchanged since its reply: a row that gave its mark has to give it again. */
static bool is_unchanged(struct build *build, const struct wire_reply *before, const char *token, const char *mark) {
    struct wire_reply now = {.kind = WIRE_PASS};
    struct wire_bytes none, again;
    if (!before->looked) return wire_confirm(WIRE_PART, before, wire_text(token));
    bool same = ask_about(WIRE_PART, build, NULL, false, &now) && now.looked == before->looked &&
                wire_next(&now, &none) && wire_next(&now, &again) && again.size == strlen(mark) &&
                !memcmp(again.at, mark, again.size);
    wire_done(&now);
    return same;
}

/* The mark of a part that has been compiled, to be freed; NULL if its headers changed meanwhile. A row gives it
   before. */
static char *mark_of(const char *token, char *before) {
    struct wire_bytes field = wire_text(token);
    struct wire_reply reply;
    char *mark = NULL;
    if (!*token) return before;
    if (wire_ask_server(WIRE_PART_COMPILED, &field, 1, &reply) && reply.kind == WIRE_HIT && wire_next(&reply, &field))
        mark = copy_field(field);
    wire_done(&reply);
    free(before);
    return mark;
}

/* What a part is compiled from is read before that is done, and compared afterwards. The server hears of the end, also
   if it failed. */
cl_int compile_known(struct program *program, cl_program handle, const struct asked *asked,
                     const struct headers *headers) {
    struct build build = {.handle = handle, .options = asked->options ? asked->options : ""};
    struct wire_reply reply = {.kind = WIRE_PASS};
    struct wire_bytes field;
    char *token = NULL, *mark = NULL;
    bool fits = !is_il(program) && !headers->count && !headers->programs && !headers->names && !asked->notify && !asked->data &&
                find_devices(&build, asked->count, asked->devices) && build.count == build.total;
    if (!fits) tell_other("clCompileProgram", asked->options, handle);
    if (asked->notify) never_part(program);
    if (fits && ask_about(WIRE_PART, &build, NULL, false, &reply) && reply.kind == WIRE_HIT) {
        if (wire_next(&reply, &field)) token = copy_field(field);
        if (wire_next(&reply, &field)) mark = copy_field(field);
    }
    bool is_part = token && mark, refused = !is_part && wire_requires();
    if (refused) refuse_build(program, wire_refusal(&reply));
    cl_int code = refused ? CL_COMPILE_PROGRAM_FAILURE
                          : below.clCompileProgram(handle, asked->count, asked->devices, asked->options,
                                                   headers->count, headers->programs, headers->names, asked->notify,
                                                   asked->data);
    if (!refused && has_begun(code)) {
        stop_serving(program);
        built_by_driver(program, 0);
    }
    if (is_part && code == CL_SUCCESS && !is_unchanged(&build, &reply, token, mark)) is_part = false;
    wire_done(&reply);
    if (is_part) mark = mark_of(token, mark);
    if (is_part && mark && code == CL_SUCCESS) set_part(program, mark, build.options);
    free(token);
    free(mark);
    return code;
}

/* How to compile the parts of a link again; NULL without memory. */
static struct part *copy_parts(const struct inputs *inputs) {
    struct part *parts = calloc(inputs->count, sizeof *parts);
    bool whole = parts;
    for (cl_uint i = 0; whole && i < inputs->count; i++) {
        parts[i].source = info_text((get_info)below.clGetProgramInfo, inputs->programs[i], CL_PROGRAM_SOURCE);
        parts[i].options = options_of_part(inputs->programs[i]);
        whole = parts[i].source && parts[i].options;
    }
    if (whole) return parts;
    free_parts(parts, inputs->count);
    return NULL;
}

/* Link by the driver, with the programs behind the handles. */
static cl_program link_programs(const struct asked *asked, const struct inputs *inputs, cl_int *error) {
    bool given = inputs->programs && inputs->count;
    struct twin **twins = given ? calloc(inputs->count, sizeof *twins) : NULL;
    cl_program *handles = twins ? calloc(inputs->count, sizeof *handles) : NULL;
    for (cl_uint i = 0; handles && i < inputs->count; i++) {
        twins[i] = borrow_twin(inputs->programs[i]);
        handles[i] = twins[i] ? twins[i]->handle : inputs->programs[i];
    }
    cl_program linked =
        below.clLinkProgram(inputs->context, asked->count, asked->devices, asked->options, inputs->count,
                            handles ? handles : inputs->programs, asked->notify, asked->data, error);
    for (cl_uint i = 0; handles && i < inputs->count; i++) give_back(twins[i]);
    free(handles);
    free(twins);
    return linked;
}

/* Whether a link is of programs of its context for all its devices, in their order, so that its program has the
   same. */
static bool find_link_devices(struct build *build, const struct asked *asked, const struct inputs *inputs) {
    cl_context context = NULL;
    build->handle = inputs->programs[0];
    if (!find_devices(build, asked->count, asked->devices) || build->count != build->total) return false;
    for (cl_uint i = 0; i < asked->count; i++)
        if (i >= build->total || asked->devices[i] != build->all[i]) return false;
    for (cl_uint i = 0; i < inputs->count; i++)
        if (below.clGetProgramInfo(inputs->programs[i], CL_PROGRAM_CONTEXT, sizeof context, &context, NULL) ||
            context != inputs->context)
            return false;
    return true;
}

/* A link of parts; ``turn`` is of the moment when it was asked for. */
static cl_program link_from_parts(struct build *build, const struct asked *asked, const struct inputs *inputs,
                                  uint64_t turn, const char *token, struct wire_reply *reply, cl_int *error) {
    enum wire_wanted wanted = wire_next_wanted(reply);
    struct stopwatch link = begin_compile();
    uint64_t later;
    cl_int code = CL_SUCCESS;
    build->handle = link_programs(asked, inputs, &code);
    uint64_t ns = end_compile(&link);
    if (error) *error = code;
    if (!wire_asks()) return build->handle;
    if (wanted && code == CL_SUCCESS) wire_confirm(WIRE_LINK, reply, wire_text(token));
    char *now = marks_of(inputs->count, inputs->programs, &later);
    tell_built(build, token, now && later == turn ? wanted : WIRE_NOT_WANTED, code, ns);
    free(now);
    return build->handle;
}

cl_program link_known(const struct asked *asked, const struct inputs *inputs, cl_int *error) {
    struct build build = {.options = asked->options ? asked->options : ""};
    struct wire_reply reply = {.kind = WIRE_PASS};
    uint64_t turn;
    char *token = NULL, *marks = NULL;
    if (inputs->programs && !asked->notify && !asked->data) marks = marks_of(inputs->count, inputs->programs, &turn);
    struct part *parts = marks && find_link_devices(&build, asked, inputs) ? copy_parts(inputs) : NULL;
    struct twin *twin = parts ? ask_twin(WIRE_LINK, &build, marks, &reply, &token) : NULL;
    cl_program linked = NULL;
    if (!parts) tell_other("clLinkProgram", asked->options, NULL);
    if (twin) {
        linked = twin->handle;
        below.clRetainProgram(linked);
        twin->parts = parts;
        twin->inputs = inputs->count;
        remember_link(twin);
        tell_served(&build, token);
        if (error) *error = CL_SUCCESS;
        parts = NULL;
    } else if (wire_requires()) {
        if (error) *error = CL_LINK_PROGRAM_FAILURE;
    } else if (token && *token) {
        linked = link_from_parts(&build, asked, inputs, turn, token, &reply, error);
    } else {
        linked = link_programs(asked, inputs, error);
    }
    wire_done(&reply);
    free_parts(parts, inputs->count);
    free(marks);
    free(token);
    return linked;
}
