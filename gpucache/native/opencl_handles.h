/* The facts and reference counts of a command's handles, from their creation on. The lock inside is
   released before a driver or the server is called, so that no callback or fork() waits for it long. */
#ifndef GPUCACHE_OPENCL_HANDLES_H
#define GPUCACHE_OPENCL_HANDLES_H

#include "opencl_abi.h"

#include <stdbool.h>

#define MAX_DEVICES 64 /* of a program, one bit each; programs with more are not served */

/* The functions of the next library: another layer, or the loader. */
extern cl_icd_dispatch below;

/* A program that was created from source or from IL. */
struct program;

/* A program that was compiled to be linked: how to compile it again. */
struct part {
    char *source, *options;
};

/* The driver's program from our binaries, for the devices of the program that were built for. Nothing in it
   changes but the model, so its borrowers read it without the lock; the last to give it back releases it. */
struct twin {
    size_t users;
    cl_program handle;
    cl_uint total; /* devices of the program */
    cl_uint count; /* devices of the build */
    cl_device_id devices[MAX_DEVICES];
    cl_uint places[MAX_DEVICES]; /* where each is among all devices of the program */
    char *logs[MAX_DEVICES];
    char *options;
    struct part *parts; /* of a linked program, whose handle is the command's too; NULL of any other */
    cl_uint inputs;
    cl_program model; /* see keep_model() */
};

struct local_size {
    cl_uint dimensions; /* 0 if the driver chooses */
    size_t of[3];       /* 0 beyond the dimensions */
};

/* Make the lock survive fork(). */
void begin_handles(void);

/* ---- Programs ---- */

void remember_program(cl_program handle);
void program_retained(cl_program handle);

/* To be called before the driver releases the program, which may then use the address for another. Its
   results are given to forget_program() afterwards; either may be NULL. */
struct program *program_released(cl_program handle);
void forget_program(struct program *unused);

void unpin_program(struct program *program);

/* ---- Programs that are created from IL: their first build alone is served ---- */

#define IL_MARK 0 /* the first byte of their text in a question, which no source begins with */

void remember_il(cl_program handle, const void *il, size_t size);
bool is_il(struct program *program);

/* A program's constants and IL as they are in a question, to be freed: the mark, a line "ID HEX" for each constant
   that was set, by ID, an empty line, the IL. NULL for a program from source, and while a constant is being set.
   ``turn`` differs whenever one was set meanwhile. */
char *il_of(cl_program handle, size_t *size, uint64_t *turn);

/* The same for the IL alone, to create the program again with set_constants(). */
char *bare_il_of(cl_program handle, size_t *size);
void set_constants(cl_program handle, cl_program of_another);

/* A constant is about to be set, and was set if the driver took it. A served build is to be repeated before, once. */
enum constant_of { OF_NO_IL, OF_IL, OF_SERVED };
enum constant_of begin_constant(cl_program handle);
void end_constant(cl_program handle, cl_uint id, size_t size, const void *value, bool taken);
bool constants_changed(struct program *program, uint64_t turn);

/* Pin a program for a build, after which it is no part; NULL where it is unknown, or where another thread
   builds it already. */
struct program *begin_build(cl_program handle);
void end_build(struct program *program);

/* Whether a build for some devices, a bit each, may be served. It may not if the handle has a build for other
   devices, because it would have to contain both; and never after that. */
bool may_serve(struct program *program, uint64_t devices);
void stop_serving(struct program *program);

/* Whether kernels of a twin forbid another build, as they would if they were the program's own. */
bool twin_has_kernels(struct program *program);

/* The driver has built or tried to build from source: that counts now, and no twin. */
void built_by_driver(struct program *program, uint64_t devices);

/* Our binaries count now. */
void set_twin(struct program *program, struct twin *twin);

/* A linked program that is served, with a reference of the command's. */
void remember_link(struct twin *twin);

/* Make a program a part, by the mark and the options of its compile; not if another thread began one meanwhile. */
void set_part(struct program *program, const char *mark, const char *options);

/* A program that is compiled with a callback, perhaps later than any other call sees, is not a part from then on. */
void never_part(struct program *program);

/* The marks of parts, a line each, to be freed; NULL unless all are parts. ``turn`` differs whenever one of them
   was compiled or built meanwhile. */
char *marks_of(cl_uint count, const cl_program *handles, uint64_t *turn);

/* The options that a part was compiled with, to be freed; NULL if it is not one. */
char *options_of_part(cl_program handle);

/* The server's name for the last build that was requested, or NULL; launches are reported anew for it. */
void set_token(struct program *program, const char *token);

/* The log of a build that has to fail, valid until the next; NULL if there is none. The program owns it. */
void set_refusal(struct program *program, char *log);

/* A copy of it, to be freed. */
char *refusal_of(cl_program handle);

/* ---- Twins ---- */

/* NULL for a program that is not served. */
struct twin *borrow_twin(cl_program handle);
void give_back(struct twin *twin);
void free_twin(struct twin *twin);
void free_parts(struct part *parts, cl_uint count);

/* The same program built from source, for queries that fail on a program made from a binary. It is made
   for the first of them; if two threads make one, the first stays. NULL asks for one. */
cl_program keep_model(struct twin *twin, cl_program model);

/* ---- Kernels, known where their program is ---- */

void remember_kernel(cl_kernel handle, cl_program program);
void remember_clone(cl_kernel handle, cl_kernel source);
void kernel_retained(cl_kernel handle);
struct program *kernel_released(cl_kernel handle); /* as program_released() */
cl_program program_of_kernel(cl_kernel handle);    /* the command's own handle; NULL for an unknown kernel */

/* The program of a kernel, pinned, if a launch may have to be reported; else NULL, which is quick. */
struct program *program_to_tell(cl_kernel handle, const struct local_size *size);

/* Note a launch. A copy of the program's token if none like it was reported before, else NULL. */
char *note_launch(struct program *program, cl_kernel handle, const char *name, const struct local_size *size);

#endif
