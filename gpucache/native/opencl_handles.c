#define _GNU_SOURCE
#include "opencl_handles.h"
#include "wire.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
#define MAX_LAUNCHES 256 /* different ones that are reported of a program */
#define LARGEST_CONSTANT 16 /* bytes; SPIR-V's largest scalar has 8 */

cl_icd_dispatch below;

struct entry {
    void *handle;
    struct entry *next;
};

struct launch {
    struct launch *next;
    struct local_size size;
    char kernel[];
};

struct constant {
    struct constant *next; /* of a higher ID */
    cl_uint id;
    size_t size;
    unsigned char value[];
};

/* Forgotten when all three counts are zero. A driver's own count would not do: PoCL's includes the kernels,
   and others' does not. */
struct program {
    struct entry entry;
    size_t references; /* the command's own */
    size_t kernels;    /* that exist, as they keep their program alive */
    size_t pins;       /* calls of the layer that are still using this */
    bool building;
    bool stopped;      /* never to be served again */
    bool never_part;
    bool kept;         /* our reference keeps the driver's program, which has no kernels */
    uint64_t compiled; /* devices for which the driver has built it from source */
    struct twin *twin;
    char *token;
    char *refusal; /* the log of a build that had to fail */
    uint64_t turns, turn; /* builds that were begun, and the one that is under way */
    char *mark;           /* of its inputs, if it is a part; else NULL */
    char *part_options;
    struct launch *launches;
    size_t told;
    char *il; /* NULL of a program from source */
    size_t il_size;
    struct constant *constants; /* as the driver took them */
    size_t setting;             /* calls that are setting one */
    uint64_t constant_turns;    /* calls that began to */
};

struct kernel {
    struct entry entry;
    struct program *program;
    size_t references;
    bool launched;
    struct local_size size; /* of the last launch, so that the next one like it costs a comparison */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *programs[BUCKETS], *kernels[BUCKETS];

static void enter(void) { pthread_mutex_lock(&lock); }
static void leave(void) { pthread_mutex_unlock(&lock); }

void begin_handles(void) { pthread_atfork(enter, leave, leave); }

/* ---- Tables; the functions below are called under the lock ---- */

/* The link that points to a handle's entry, or to the end of where it would be. */
static struct entry **place_of(struct entry **table, const void *handle) {
    struct entry **link = &table[((uintptr_t)handle >> 4 ^ (uintptr_t)handle >> 14) % BUCKETS];
    while (*link && (*link)->handle != handle) link = &(*link)->next;
    return link;
}

static struct program *program_of(cl_program handle) { return (struct program *)*place_of(programs, handle); }
static struct kernel *kernel_of(cl_kernel handle) { return (struct kernel *)*place_of(kernels, handle); }

static void unlink_entry(struct entry **table, struct entry *entry) {
    struct entry **link = place_of(table, entry->handle);
    if (*link == entry) *link = entry->next;
}

static void link_entry(struct entry **table, struct entry *entry) {
    struct entry **link = place_of(table, entry->handle);
    entry->next = *link;
    *link = entry;
}

/* The program, out of the table, once nothing needs it; else NULL. */
static struct program *take_if_unused(struct program *program) {
    if (!program || program->references || program->kernels || program->pins) return NULL;
    unlink_entry(programs, &program->entry);
    return program;
}

static struct program *take_off_kernel(struct kernel *kernel) {
    unlink_entry(kernels, &kernel->entry);
    kernel->program->kernels--;
    return take_if_unused(kernel->program);
}

/* ---- Twins ---- */

void free_parts(struct part *parts, cl_uint count) {
    for (cl_uint i = 0; parts && i < count; i++) {
        free(parts[i].source);
        free(parts[i].options);
    }
    free(parts);
}

void free_twin(struct twin *twin) {
    if (twin->handle) below.clReleaseProgram(twin->handle);
    if (twin->model) below.clReleaseProgram(twin->model);
    for (cl_uint i = 0; i < twin->count; i++) free(twin->logs[i]);
    free_parts(twin->parts, twin->inputs);
    free(twin->options);
    free(twin);
}

void give_back(struct twin *twin) {
    if (!twin) return;
    enter();
    bool last = --twin->users == 0;
    leave();
    if (last) free_twin(twin);
}

struct twin *borrow_twin(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    struct twin *twin = program ? program->twin : NULL;
    if (twin) twin->users++;
    leave();
    return twin;
}

cl_program keep_model(struct twin *twin, cl_program model) {
    enter();
    cl_program spare = twin->model ? model : NULL;
    if (!twin->model) twin->model = model;
    model = twin->model;
    leave();
    if (spare) below.clReleaseProgram(spare);
    return model;
}

/* ---- Programs ---- */

static void free_launches(struct launch *launch) {
    for (struct launch *next; launch; launch = next) {
        next = launch->next;
        free(launch);
    }
}

static void free_constants(struct constant *constant) {
    for (struct constant *next; constant; constant = next) {
        next = constant->next;
        free(constant);
    }
}

void forget_program(struct program *unused) {
    if (!unused) return;
    give_back(unused->twin);
    if (unused->kept) below.clReleaseProgram(unused->entry.handle);
    free_launches(unused->launches);
    free(unused->token);
    free(unused->refusal);
    free(unused->mark);
    free(unused->part_options);
    free_constants(unused->constants);
    free(unused->il);
    free(unused);
}

/* Takes the twin or the IL. */
static void remember_with(cl_program handle, struct twin *twin, char *il, size_t il_size) {
    struct program *program = calloc(1, sizeof *program);
    if (!program) {
        give_back(twin);
        free(il);
        return;
    }
    program->il = il;
    program->il_size = il_size;
    program->entry.handle = handle;
    program->references = 1;
    program->twin = twin;
    program->stopped = twin;
    enter();
    struct program *stale = program_of(handle); /* its end was not seen; the driver has reused its address */
    if (stale) unlink_entry(programs, &stale->entry);
    link_entry(programs, &program->entry);
    leave();
}

void remember_program(cl_program handle) { remember_with(handle, NULL, NULL, 0); }
void remember_link(struct twin *twin) { remember_with(twin->handle, twin, NULL, 0); }

void program_retained(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    if (program) program->references++;
    leave();
}

struct program *program_released(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    if (program && program->references) program->references--;
    program = take_if_unused(program);
    leave();
    return program;
}

void unpin_program(struct program *program) {
    enter();
    program->pins--;
    program = take_if_unused(program);
    leave();
    forget_program(program);
}

struct program *begin_build(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    char *mark = program ? program->mark : NULL, *options = program ? program->part_options : NULL;
    if (program) {
        program->mark = program->part_options = NULL;
        program->turns++;
    }
    if (program && program->building) program = NULL;
    if (program) {
        program->building = true;
        program->turn = program->turns;
        program->pins++;
    }
    leave();
    free(mark);
    free(options);
    return program;
}

void end_build(struct program *program) {
    enter();
    program->building = false;
    leave();
    unpin_program(program);
}

bool may_serve(struct program *program, uint64_t devices) {
    enter();
    uint64_t standing = program->compiled;
    for (cl_uint i = 0; program->twin && i < program->twin->count; i++)
        standing |= UINT64_C(1) << program->twin->places[i];
    if (standing & ~devices || (program->il && program->turns > 1)) program->stopped = true;
    bool may = !program->stopped;
    leave();
    return may;
}

bool twin_has_kernels(struct program *program) {
    enter();
    bool has = program->twin && program->kernels;
    leave();
    return has;
}

void stop_serving(struct program *program) {
    enter();
    program->stopped = true;
    leave();
}

void built_by_driver(struct program *program, uint64_t devices) {
    enter();
    struct twin *before = program->twin;
    bool kept = program->kept;
    program->twin = NULL;
    program->kept = false;
    program->compiled |= devices;
    leave();
    give_back(before);
    if (kept) below.clReleaseProgram(program->entry.handle);
}

void set_twin(struct program *program, struct twin *twin) {
    bool keep = !program->kept && below.clRetainProgram(program->entry.handle) == CL_SUCCESS;
    enter();
    struct twin *before = program->twin;
    program->twin = twin;
    program->kept |= keep;
    leave();
    give_back(before);
}

/* ---- Programs from IL ---- */

void remember_il(cl_program handle, const void *il, size_t size) {
    char *copy = size && size <= WIRE_MAX_BYTES ? malloc(size) : NULL;
    if (!copy) return; /* its build is left to the driver */
    memcpy(copy, il, size);
    remember_with(handle, NULL, copy, size);
}

bool is_il(struct program *program) { return program->il; } /* which never changes */

enum constant_of begin_constant(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    enum constant_of of = !program || !program->il ? OF_NO_IL : program->twin && !program->stopped ? OF_SERVED : OF_IL;
    if (of) {
        program->setting++;
        program->constant_turns++;
    }
    if (of == OF_SERVED) program->stopped = true;
    leave();
    return of;
}

void end_constant(cl_program handle, cl_uint id, size_t size, const void *value, bool taken) {
    struct constant *constant = taken ? malloc(sizeof *constant + size) : NULL, *before = NULL;
    if (constant) {
        constant->id = id;
        constant->size = size;
        memcpy(constant->value, value, size);
    }
    enter();
    struct program *program = program_of(handle);
    if (program && taken && (!constant || size > LARGEST_CONSTANT)) program->stopped = true;
    if (program && constant) {
        struct constant **link = &program->constants;
        while (*link && (*link)->id < id) link = &(*link)->next;
        before = *link && (*link)->id == id ? *link : NULL;
        constant->next = before ? before->next : *link;
        *link = constant;
        constant = NULL;
    }
    if (program) program->setting--;
    leave();
    free(before);
    free(constant);
}

bool constants_changed(struct program *program, uint64_t turn) {
    enter();
    bool changed = program->constant_turns != turn;
    leave();
    return changed;
}

char *il_of(cl_program handle, size_t *size, uint64_t *turn) {
    char *text = NULL;
    FILE *to = open_memstream(&text, size);
    if (!to) return NULL;
    enter();
    struct program *program = program_of(handle);
    bool whole = program && program->il && !program->setting && fputc(IL_MARK, to) != EOF;
    *turn = program ? program->constant_turns : 0;
    for (struct constant *each = whole ? program->constants : NULL; each; each = each->next) {
        fprintf(to, "%u ", each->id);
        for (size_t i = 0; i < each->size; i++) fprintf(to, "%02x", each->value[i]);
        fputc('\n', to);
    }
    if (whole) whole = fputc('\n', to) != EOF && fwrite(program->il, 1, program->il_size, to) == program->il_size;
    leave();
    if (fclose(to)) whole = false;
    if (whole) return text;
    free(text);
    return NULL;
}

char *bare_il_of(cl_program handle, size_t *size) {
    enter();
    struct program *program = program_of(handle);
    char *copy = program && program->il ? malloc(program->il_size) : NULL;
    if (copy) memcpy(copy, program->il, *size = program->il_size);
    leave();
    return copy;
}

/* One after another, as no driver is called under the lock. */
void set_constants(cl_program handle, cl_program of_another) {
    unsigned char value[LARGEST_CONSTANT];
    cl_uint id = 0;
    size_t size = 0;
    for (bool first = true;; first = false) {
        enter();
        struct program *program = program_of(of_another);
        struct constant *each = program ? program->constants : NULL;
        while (each && ((!first && each->id <= id) || each->size > sizeof value)) each = each->next;
        if (each) {
            id = each->id;
            memcpy(value, each->value, size = each->size);
        }
        leave();
        if (!each) return;
        below.clSetProgramSpecializationConstant(handle, id, size, value);
    }
}

void set_part(struct program *program, const char *mark, const char *options) {
    char *marked = strdup(mark), *kept = strdup(options);
    enter();
    if (marked && kept && program->turn == program->turns && !program->never_part) {
        program->mark = marked;
        program->part_options = kept;
        marked = kept = NULL;
    }
    leave();
    free(marked);
    free(kept);
}

void never_part(struct program *program) {
    enter();
    program->never_part = true;
    leave();
}

char *marks_of(cl_uint count, const cl_program *handles, uint64_t *turn) {
    char *marks = NULL;
    size_t size = 0;
    FILE *to = count ? open_memstream(&marks, &size) : NULL;
    bool whole = to;
    *turn = 0;
    enter();
    for (cl_uint i = 0; whole && i < count; i++) {
        struct program *program = program_of(handles[i]);
        whole = program && program->mark && fprintf(to, "%s\n", program->mark) > 0;
        if (whole) *turn += program->turns;
    }
    leave();
    if (to && fclose(to)) whole = false;
    if (whole) return marks;
    free(marks);
    return NULL;
}

char *options_of_part(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    char *options = program && program->part_options ? strdup(program->part_options) : NULL;
    leave();
    return options;
}

void set_refusal(struct program *program, char *log) {
    enter();
    char *before = program->refusal;
    program->refusal = log;
    leave();
    free(before);
}

char *refusal_of(cl_program handle) {
    enter();
    struct program *program = program_of(handle);
    char *log = program && program->refusal ? strdup(program->refusal) : NULL;
    leave();
    return log;
}

void set_token(struct program *program, const char *token) {
    char *copy = token && *token ? strdup(token) : NULL;
    enter();
    char *before = program->token;
    struct launch *launches = program->launches;
    program->token = copy;
    program->launches = NULL;
    program->told = 0;
    leave();
    free(before);
    free_launches(launches);
}

/* ---- Kernels ---- */

/* The kernel is one of a program, or a copy of another kernel. */
static void remember(cl_kernel handle, cl_program program_handle, cl_kernel source) {
    struct kernel *kernel = calloc(1, sizeof *kernel), *spare = kernel;
    struct program *unused = NULL;
    enter();
    struct kernel *stale = kernel_of(handle), *origin = source ? kernel_of(source) : NULL;
    struct program *program = source ? (origin ? origin->program : NULL) : program_of(program_handle);
    if (kernel && program) {
        *kernel = (struct kernel){.entry.handle = handle, .program = program, .references = 1};
        program->kernels++;
    }
    if (stale) unused = take_off_kernel(stale); /* its end was not seen */
    if (kernel && program) {
        link_entry(kernels, &kernel->entry);
        spare = NULL;
    }
    leave();
    free(spare);
    free(stale);
    forget_program(unused);
}

void remember_kernel(cl_kernel handle, cl_program program) { remember(handle, program, NULL); }
void remember_clone(cl_kernel handle, cl_kernel source) { remember(handle, NULL, source); }

void kernel_retained(cl_kernel handle) {
    enter();
    struct kernel *kernel = kernel_of(handle);
    if (kernel) kernel->references++;
    leave();
}

struct program *kernel_released(cl_kernel handle) {
    struct program *unused = NULL;
    enter();
    struct kernel *kernel = kernel_of(handle);
    bool last = kernel && --kernel->references == 0;
    if (last) unused = take_off_kernel(kernel);
    leave();
    if (last) free(kernel);
    return unused;
}

cl_program program_of_kernel(cl_kernel handle) {
    enter();
    struct kernel *kernel = kernel_of(handle);
    cl_program program = kernel ? kernel->program->entry.handle : NULL;
    leave();
    return program;
}

/* ---- Launches ---- */

static bool same_size(const struct local_size *one, const struct local_size *other) {
    return one->dimensions == other->dimensions && !memcmp(one->of, other->of, sizeof one->of);
}

struct program *program_to_tell(cl_kernel handle, const struct local_size *size) {
    enter();
    struct kernel *kernel = kernel_of(handle);
    struct program *program = kernel && kernel->program->token ? kernel->program : NULL;
    if (program && kernel->launched && same_size(&kernel->size, size)) program = NULL;
    if (program) program->pins++;
    leave();
    return program;
}

char *note_launch(struct program *program, cl_kernel handle, const char *name,
                  const struct local_size *size) {
    struct launch *fresh = calloc(1, sizeof *fresh + strlen(name) + 1);
    if (!fresh) return NULL;
    fresh->size = *size;
    strcpy(fresh->kernel, name);
    enter();
    struct kernel *kernel = kernel_of(handle);
    if (kernel && kernel->program == program) {
        kernel->launched = true;
        kernel->size = *size;
    }
    struct launch *like = program->launches;
    while (like && !(same_size(&like->size, size) && !strcmp(like->kernel, name))) like = like->next;
    char *token = !like && program->token && program->told < MAX_LAUNCHES ? strdup(program->token) : NULL;
    if (token) {
        program->told++;
        fresh->next = program->launches;
        program->launches = fresh;
    }
    leave();
    if (!token) free(fresh);
    return token;
}
