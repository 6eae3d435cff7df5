/* Builds of one program: described to the server, then served by it or left to the driver. */
#ifndef GPUCACHE_OPENCL_BUILDS_H
#define GPUCACHE_OPENCL_BUILDS_H

#include "opencl_handles.h"

/* A command's request for a build. */
struct asked {
    cl_uint count;
    const cl_device_id *devices;
    const char *options;
    cl_program_notify notify;
    void *data;
};

/* Make the state in this file survive fork(). */
void begin_builds(void);

/* The build as it would be without the layer. */
cl_int pass_on(cl_program handle, const struct asked *asked);

/* Repeat a served build in the driver's own program. */
void repeat_build(cl_program handle, const struct twin *twin);

enum progress {
    ENDED,
    SERVED,    /* the caller has to notify */
    UNDER_WAY, /* end_build() is called when the driver notifies */
};

/* Build a program for which begin_build() was called. */
cl_int build_known(struct program *program, cl_program handle, const struct asked *asked,
                   enum progress *progress);

/* A command's request for a compile to be linked later, without its devices and options. */
struct headers {
    cl_uint count;
    const cl_program *programs;
    const char **names;
};

/* Compile a program for which begin_build() was called; it may be a part of links afterwards. */
cl_int compile_known(struct program *program, cl_program handle, const struct asked *asked,
                     const struct headers *headers);

/* A command's request for a link, without its devices and options. */
struct inputs {
    cl_context context;
    cl_uint count;
    const cl_program *programs;
};

cl_program link_known(const struct asked *asked, const struct inputs *inputs, cl_int *error);

/* Report a call that is not served. */
void tell_other(const char *call, const char *options, cl_program of);

/* Make a build fail that GPUCACHE_REQUIRE does not allow: its log, which the program then owns, says why. */
void refuse_build(struct program *program, char *log);

/* Whether an error comes from a build that has begun, so that an earlier build is no longer valid. */
bool has_begun(cl_int code);

/* The program of a twin compiled from source; NULL if that fails. */
cl_program model_of(cl_program handle, struct twin *twin);

typedef cl_int (*get_info)(void *, cl_uint, size_t, void *, size_t *);

/* A text from a driver, to be freed; NULL if it gives none. */
char *info_text(get_info get, void *of, cl_uint name);

#endif
