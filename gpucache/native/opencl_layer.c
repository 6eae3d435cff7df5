/* An OpenCL layer that lets gpucache serve the programs that a command builds from source.

   It is between the loader and the drivers (OPENCL_LAYERS) and contains no policy: the server at the other
   end of the socket decides whether a build is served, and in any doubt the call goes to the driver as if
   this file did not exist. Calls that fail in the driver change no state of the layer.

   A served program keeps the handle that it was created with. Behind it is a twin, which the driver made from
   our binary: every query that depends on the build goes to the twin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "index.h"
#include "opencl_builds.h"

#define EXPORTED __attribute__((visibility("default")))


/* ---- served calls ---- */

static cl_int build_program(cl_program handle, cl_uint count, const cl_device_id *devices,
                            const char *options, cl_program_notify notify, void *data) {
    struct asked asked = {count, devices, options, notify, data};
    struct program *program = begin_build(handle);
    if (!program) return pass_on(handle, &asked);
    enum progress progress = ENDED;
    cl_int code = build_known(program, handle, &asked, &progress);
    if (progress != UNDER_WAY) end_build(program);
    if (progress == SERVED && notify) notify(handle, data);
    return code;
}

/* A program that is compiled apart loses its earlier build, and no build of such a handle is served again. */
static cl_int compile_program(cl_program handle, cl_uint count, const cl_device_id *devices,
                              const char *options, cl_uint header_count,
                              const cl_program *headers, const char **names,
                              cl_program_notify notify, void *data) {
    struct asked asked = {count, devices, options, notify, data};
    struct headers with = {header_count, headers, names};
    struct program *program = begin_build(handle);
    if (!program) {
        tell_other("clCompileProgram", options, handle);
        if (wire_requires()) return CL_COMPILE_PROGRAM_FAILURE;
        return below.clCompileProgram(handle, count, devices, options, header_count, headers, names, notify, data);
    }
    cl_int code = CL_INVALID_OPERATION;
    if (!twin_has_kernels(program)) code = compile_known(program, handle, &asked, &with);
    end_build(program);
    return code;
}

static cl_program link_program(cl_context context, cl_uint count, const cl_device_id *devices,
                               const char *options, cl_uint inputs, const cl_program *given,
                               cl_program_notify notify, void *data, cl_int *error) {
    struct asked asked = {count, devices, options, notify, data};
    struct inputs from = {context, inputs, given};
    return link_known(&asked, &from, error);
}

/* ---- counted calls ---- */

static cl_program create_program_with_source(cl_context context, cl_uint count,
                                             const char **strings, const size_t *lengths,
                                             cl_int *error) {
    cl_program handle = below.clCreateProgramWithSource(context, count, strings, lengths, error);
    if (handle && (wire_asks() || wire_requires())) remember_program(handle);
    return handle;
}

static cl_int retain_program(cl_program handle) {
    cl_int code = below.clRetainProgram(handle);
    if (code == CL_SUCCESS) program_retained(handle);
    return code;
}

static cl_int release_program(cl_program handle) {
    struct program *unused = program_released(handle);
    cl_int code = below.clReleaseProgram(handle);
    forget_program(unused);
    return code;
}

static cl_kernel create_kernel(cl_program program, const char *name, cl_int *error) {
    struct twin *twin = borrow_twin(program);
    cl_kernel kernel = below.clCreateKernel(twin ? twin->handle : program, name, error);
    give_back(twin);
    if (kernel) remember_kernel(kernel, program);
    return kernel;
}

static cl_int create_kernels_in_program(cl_program program, cl_uint room, cl_kernel *made,
                                        cl_uint *count) {
    struct twin *twin = borrow_twin(program);
    cl_uint found = 0;
    cl_int code = below.clCreateKernelsInProgram(twin ? twin->handle : program, room, made, &found);
    give_back(twin);
    if (code != CL_SUCCESS) return code;
    for (cl_uint i = 0; made && i < found && i < room; i++) remember_kernel(made[i], program);
    if (count) *count = found;
    return code;
}

static cl_kernel clone_kernel(cl_kernel source, cl_int *error) {
    cl_kernel kernel = below.clCloneKernel(source, error);
    if (kernel) remember_clone(kernel, source);
    return kernel;
}

static cl_int retain_kernel(cl_kernel handle) {
    cl_int code = below.clRetainKernel(handle);
    if (code == CL_SUCCESS) kernel_retained(handle);
    return code;
}

static cl_int release_kernel(cl_kernel handle) {
    struct program *unused = kernel_released(handle);
    cl_int code = below.clReleaseKernel(handle);
    forget_program(unused);
    return code;
}

/* ---- queries to the twin ---- */

static cl_int answer(const void *value, size_t size, size_t room, void *to, size_t *size_ret) {
    if (to && room < size) return CL_INVALID_VALUE;
    if (to) memcpy(to, value, size);
    if (size_ret) *size_ret = size;
    return CL_SUCCESS;
}

/* As many sizes as the program has devices, with none for those that it was not built for. */
static cl_int binary_sizes(const struct twin *twin, size_t room, void *to, size_t *size_ret) {
    size_t built[MAX_DEVICES], all[MAX_DEVICES] = {0};
    cl_int code = below.clGetProgramInfo(twin->handle, CL_PROGRAM_BINARY_SIZES, sizeof built, built, NULL);
    if (code != CL_SUCCESS) return code;
    for (cl_uint i = 0; i < twin->count; i++) all[twin->places[i]] = built[i];
    return answer(all, sizeof *all * twin->total, room, to, size_ret);
}

/* The command gives a place for each device of the program; the twin fills those that were built for. */
static cl_int binaries(const struct twin *twin, size_t room, void *to, size_t *size_ret) {
    unsigned char *places[MAX_DEVICES], **all = to;
    size_t size = sizeof *all * twin->total, built = sizeof *places * twin->count;
    if (size_ret) *size_ret = size;
    if (!to) return CL_SUCCESS;
    if (room < size) return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < twin->count; i++) places[i] = all[twin->places[i]];
    return below.clGetProgramInfo(twin->handle, CL_PROGRAM_BINARIES, built, places, NULL);
}

/* As without a twin: one of the references to the program is ours, and so is one to the twin. */
static cl_int reference_count(cl_program program, const struct twin *twin, size_t room, void *to,
                              size_t *size_ret) {
    cl_uint own = 1, behind = 1;
    cl_int code = below.clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof own, &own, NULL);
    if (code != CL_SUCCESS) return code;
    below.clGetProgramInfo(twin->handle, CL_PROGRAM_REFERENCE_COUNT, sizeof behind, &behind, NULL);
    cl_uint count = twin->handle == program ? own - 1 : own - 1 + behind - 1;
    return answer(&count, sizeof count, room, to, size_ret);
}

static cl_int get_program_info(cl_program program, cl_program_info name, size_t room, void *to,
                               size_t *size_ret) {
    struct twin *twin = borrow_twin(program);
    cl_int code;
    switch (twin ? name : 0) {
    case CL_PROGRAM_BINARY_SIZES: code = binary_sizes(twin, room, to, size_ret); break;
    case CL_PROGRAM_BINARIES: code = binaries(twin, room, to, size_ret); break;
    case CL_PROGRAM_REFERENCE_COUNT: code = reference_count(program, twin, room, to, size_ret); break;
    case CL_PROGRAM_NUM_KERNELS:
    case CL_PROGRAM_KERNEL_NAMES:
    case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
    case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
        code = below.clGetProgramInfo(twin->handle, name, room, to, size_ret);
        break;
    default: code = below.clGetProgramInfo(program, name, room, to, size_ret);
    }
    give_back(twin);
    return code;
}

/* Which device of a build is meant. PoCL also takes a part of a device for the whole. */
static cl_uint place_in_build(const struct twin *twin, cl_device_id device) {
    for (cl_device_id whole; device; device = whole) {
        for (cl_uint i = 0; i < twin->count; i++)
            if (twin->devices[i] == device) return i;
        if (below.clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof whole, &whole, NULL)) break;
    }
    return twin->count;
}

static cl_int get_program_build_info(cl_program program, cl_device_id device,
                                     cl_program_build_info name, size_t room, void *to,
                                     size_t *size_ret) {
    static const cl_int failed = CL_BUILD_ERROR;
    char *refusal = refusal_of(program);
    struct twin *twin = borrow_twin(program);
    cl_uint i = twin ? place_in_build(twin, device) : 0;
    cl_int code;
    if (refusal && name == CL_PROGRAM_BUILD_LOG)
        code = answer(refusal, strlen(refusal) + 1, room, to, size_ret);
    else if (refusal && name == CL_PROGRAM_BUILD_STATUS)
        code = answer(&failed, sizeof failed, room, to, size_ret);
    else if (!twin || i == twin->count)
        code = below.clGetProgramBuildInfo(program, device, name, room, to, size_ret);
    else if (name == CL_PROGRAM_BUILD_OPTIONS)
        code = answer(twin->options, strlen(twin->options) + 1, room, to, size_ret);
    else if (name == CL_PROGRAM_BUILD_LOG)
        code = answer(twin->logs[i], strlen(twin->logs[i]) + 1, room, to, size_ret);
    else
        code = below.clGetProgramBuildInfo(twin->handle, device, name, room, to, size_ret);
    give_back(twin);
    free(refusal);
    return code;
}

/* Whether a kernel is one of a twin and has no attributes, which may be because a binary has none. */
static bool lacks_attributes(cl_kernel handle) {
    size_t size = 0;
    struct twin *twin = borrow_twin(program_of_kernel(handle));
    cl_int code = twin ? below.clGetKernelInfo(handle, CL_KERNEL_ATTRIBUTES, 0, NULL, &size) : CL_SUCCESS;
    give_back(twin);
    return twin && code == CL_SUCCESS && size <= 1;
}

/* The same kernel built from source, to be released; NULL for one that is not of a twin. */
static cl_kernel kernel_of_model(cl_kernel handle) {
    cl_program program = program_of_kernel(handle);
    struct twin *twin = borrow_twin(program);
    cl_program model = twin ? model_of(program, twin) : NULL;
    char *name = model ? info_text((get_info)below.clGetKernelInfo, handle, CL_KERNEL_FUNCTION_NAME) : NULL;
    cl_kernel kernel = name ? below.clCreateKernel(model, name, NULL) : NULL;
    free(name);
    give_back(twin);
    return kernel;
}

/* Binaries of Intel's runtime say nothing about arguments. A program that asks anyway pays for a compile. */
static cl_int get_kernel_arg_info(cl_kernel handle, cl_uint index, cl_kernel_arg_info name,
                                  size_t room, void *to, size_t *size_ret) {
    cl_int code = below.clGetKernelArgInfo(handle, index, name, room, to, size_ret);
    cl_kernel model = code == CL_KERNEL_ARG_INFO_NOT_AVAILABLE ? kernel_of_model(handle) : NULL;
    if (!model) return code;
    code = below.clGetKernelArgInfo(model, index, name, room, to, size_ret);
    below.clReleaseKernel(model);
    return code;
}

static cl_int get_kernel_info(cl_kernel handle, cl_kernel_info name, size_t room, void *to,
                              size_t *size_ret) {
    bool lacks = name == CL_KERNEL_ATTRIBUTES && lacks_attributes(handle);
    cl_kernel model = lacks ? kernel_of_model(handle) : NULL;
    cl_int code = below.clGetKernelInfo(model ? model : handle, name, room, to, size_ret);
    if (model) below.clReleaseKernel(model);
    if (code != CL_SUCCESS || name != CL_KERNEL_PROGRAM || !to) return code;
    cl_program program = program_of_kernel(handle);
    if (program) *(cl_program *)to = program;
    return code;
}

/* A constant that is set after a build counts in the next one, which the driver makes: so it has to have the earlier
   build too, with the constants of then. PoCL refuses constants of programs from source only once they are built,
   and aborts before. */
static cl_int set_specialization_constant(cl_program program, cl_uint id, size_t size,
                                          const void *value) {
    enum constant_of of = begin_constant(program);
    struct twin *twin = borrow_twin(program);
    if (of == OF_SERVED && twin) repeat_build(program, twin);
    cl_program set = twin && !of ? twin->handle : program;
    cl_int code = below.clSetProgramSpecializationConstant(set, id, size, value);
    if (of) end_constant(program, id, size, value, code == CL_SUCCESS);
    give_back(twin);
    return code;
}

/* ---- calls that are only recorded ---- */

/* Whether one of a token's words, the first of which names a row, is a local size. */
static bool has_size(const char *token, const char *size) {
    size_t length = strlen(size);
    for (const char *at = token; (at = strchr(at, ' '));)
        if (!strncmp(++at, size, length) && (!at[length] || at[length] == ' ')) return true;
    return false;
}

static void tell_launched(const char *token, const char *name, const struct local_size *size) {
    char text[3 * WIRE_NUMBER_SIZE] = "", note[4 * WIRE_NUMBER_SIZE + 64];
    int used = 0;
    cl_uint dimensions = size->dimensions, of_index = *token == WIRE_OF_INDEX;
    while (of_index && dimensions > 1 && size->of[dimensions - 1] == 1) dimensions--; /* as entries have it */
    for (cl_uint i = 0; i < dimensions; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%zu", i ? "," : "", size->of[i]);
    /* The file loses no note, as the server may lose a message that nobody waits for. */
    snprintf(note, sizeof note, "launched %.17s %s", token, text);
    if (used && !(of_index && has_size(token, text))) wire_note(note);
    if (of_index) return;
    struct wire_bytes fields[] = {wire_text(token), wire_text(name), wire_text(text)};
    wire_tell(WIRE_LAUNCHED, fields, 3, 0);
}

/* The kernel's name is read before the launch, because another thread may release the kernel afterwards. */
static cl_int enqueue_nd_range_kernel(cl_command_queue queue, cl_kernel kernel,
                                      cl_uint dimensions, const size_t *offset,
                                      const size_t *global, const size_t *local, cl_uint count,
                                      const cl_event *wait, cl_event *event) {
    struct local_size size = {.dimensions = local && dimensions <= 3 ? dimensions : 0};
    for (cl_uint i = 0; i < size.dimensions; i++) size.of[i] = local[i];
    struct program *program = wire_asks() ? program_to_tell(kernel, &size) : NULL;
    char *name = program ? info_text((get_info)below.clGetKernelInfo, kernel, CL_KERNEL_FUNCTION_NAME) : NULL;
    cl_int code =
        below.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, wait, event);
    if (!program) return code;
    char *token = name && code == CL_SUCCESS ? note_launch(program, kernel, name, &size) : NULL;
    if (token) tell_launched(token, name, &size);
    unpin_program(program);
    free(token);
    free(name);
    return code;
}

static cl_program create_program_with_binary(cl_context context, cl_uint count,
                                             const cl_device_id *devices, const size_t *lengths,
                                             const unsigned char **given, cl_int *status,
                                             cl_int *error) {
    tell_other("clCreateProgramWithBinary", NULL, NULL);
    return below.clCreateProgramWithBinary(context, count, devices, lengths, given, status, error);
}

static cl_program remembered_il(cl_program handle, const void *il, size_t length) {
    if (handle && (wire_asks() || wire_requires())) remember_il(handle, il, length);
    return handle;
}

static cl_program create_program_with_il(cl_context context, const void *il, size_t length,
                                         cl_int *error) {
    return remembered_il(below.clCreateProgramWithIL(context, il, length, error), il, length);
}

/* ---- Functions of extensions that take or make a program ---- */

typedef cl_int (*function_pointer)(cl_device_id, cl_program, const char *, cl_ulong *);
typedef cl_int (*variable_pointer)(cl_device_id, cl_program, const char *, size_t *, void **);
typedef cl_program (*il_maker)(cl_context, const void *, size_t, cl_int *);
#define FUNCTION_POINTER "clGetDeviceFunctionPointerINTEL"
#define VARIABLE_POINTER "clGetDeviceGlobalVariablePointerINTEL"
#define IL_MAKER "clCreateProgramWithILKHR"

static void *vendor_function(cl_device_id device, const char *name) {
    cl_platform_id platform;
    cl_int code = below.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    return code == CL_SUCCESS ? below.clGetExtensionFunctionAddressForPlatform(platform, name) : NULL;
}

static cl_int get_function_pointer(cl_device_id device, cl_program program, const char *name,
                                   cl_ulong *to) {
    function_pointer get = (function_pointer)vendor_function(device, FUNCTION_POINTER);
    struct twin *twin = borrow_twin(program);
    cl_int code = get ? get(device, twin ? twin->handle : program, name, to) : CL_INVALID_DEVICE;
    give_back(twin);
    return code;
}

static cl_int get_variable_pointer(cl_device_id device, cl_program program, const char *name,
                                   size_t *size, void **to) {
    variable_pointer get = (variable_pointer)vendor_function(device, VARIABLE_POINTER);
    struct twin *twin = borrow_twin(program);
    cl_int code = get ? get(device, twin ? twin->handle : program, name, size, to) : CL_INVALID_DEVICE;
    give_back(twin);
    return code;
}

static cl_program create_program_with_il_khr(cl_context context, const void *il, size_t length, cl_int *error) {
    cl_device_id devices[MAX_DEVICES];
    cl_int code = below.clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof devices, devices, NULL);
    il_maker make = code == CL_SUCCESS ? (il_maker)vendor_function(devices[0], IL_MAKER) : NULL;
    if (!make && error) *error = CL_INVALID_CONTEXT;
    return make ? remembered_il(make(context, il, length, error), il, length) : NULL;
}

static void *ours_or(void *theirs, const char *name) {
    if (theirs && name && !strcmp(name, FUNCTION_POINTER)) return (void *)get_function_pointer;
    if (theirs && name && !strcmp(name, VARIABLE_POINTER)) return (void *)get_variable_pointer;
    if (theirs && name && !strcmp(name, IL_MAKER)) return (void *)create_program_with_il_khr;
    return theirs;
}

static void *get_extension_for_platform(cl_platform_id platform, const char *name) {
    return ours_or(below.clGetExtensionFunctionAddressForPlatform(platform, name), name);
}

static void *get_extension(const char *name) {
    return ours_or(below.clGetExtensionFunctionAddress(name), name);
}

/* ---- other loaders of the process ---- */

/* Loaders read OPENCL_LAYERS when a program queries platforms. A library that is linked to a loader of its own
   may never do so, as the handles that it works with come from the program's: so we ask. A program that passes
   a context or a queue on has just created or queried it, or a buffer of it. */
enum { LOADERS = 8 };
struct loaders {
    unsigned long long before, now; /* how many libraries were ever opened */
    unsigned count;
    char *paths[LOADERS];
};

static int find_loader(struct dl_phdr_info *info, size_t size, void *data) {
    struct loaders *loaders = data;
    const char *base = strrchr(info->dlpi_name, '/');
    (void)size;
    loaders->now = info->dlpi_adds;
    if (loaders->now == loaders->before) return 1; /* none since */
    if (base && !strncmp(base, "/libOpenCL", 10) && loaders->count < LOADERS)
        loaders->paths[loaders->count++] = strdup(info->dlpi_name);
    return 0;
}

static void ask_loaders(void) {
    static atomic_ullong known;
    struct loaders loaders = {.before = atomic_load(&known)};
    dl_iterate_phdr(find_loader, &loaders);
    bool first = loaders.now != loaders.before && atomic_exchange(&known, loaders.now) != loaders.now;
    for (unsigned i = 0; i < loaders.count; i++) {
        void *loader = first && loaders.paths[i] ? dlopen(loaders.paths[i], RTLD_LAZY | RTLD_NOLOAD) : NULL;
        cl_int (*ask)(cl_uint, cl_platform_id *, cl_uint *) = NULL;
        cl_uint platforms;
        if (loader) *(void **)&ask = dlsym(loader, "clGetPlatformIDs");
        if (ask) ask(0, NULL, &platforms);
        if (loader) dlclose(loader);
        free(loaders.paths[i]);
    }
    if (loaders.count) dlerror(); /* a failed lookup must not reach the program */
}

static cl_int get_context_info(cl_context context, cl_context_info name, size_t room, void *to, size_t *size_ret) {
    ask_loaders();
    return below.clGetContextInfo(context, name, room, to, size_ret);
}

static cl_int get_command_queue_info(cl_command_queue queue, cl_command_queue_info name, size_t room, void *to,
                                     size_t *size_ret) {
    ask_loaders();
    return below.clGetCommandQueueInfo(queue, name, room, to, size_ret);
}

static cl_mem create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *bytes, cl_int *error) {
    ask_loaders();
    return below.clCreateBuffer(context, flags, size, bytes, error);
}

/* A program that makes a context is about to build, so the server prepares meanwhile if no index answers. */
static void announce(void) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char pid[WIRE_NUMBER_SIZE];
    struct wire_bytes process = wire_number((uint64_t)getpid(), pid);
    if (!atomic_flag_test_and_set(&told) && !index_is_there()) wire_tell(WIRE_LOADED, &process, 1, 0);
}

static cl_context create_context(const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
                                 cl_context_notify notify, void *data, cl_int *error) {
    announce();
    return below.clCreateContext(properties, count, devices, notify, data, error);
}

static cl_context create_context_from_type(const cl_context_properties *properties, cl_device_type type,
                                           cl_context_notify notify, void *data, cl_int *error) {
    announce();
    return below.clCreateContextFromType(properties, type, notify, data, error);
}

/* ---- queries of the loader ---- */

EXPORTED cl_int clGetLayerInfo(cl_layer_info name, size_t room, void *to, size_t *size_ret) {
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    static const char title[] = "gpucache";
    if (name == CL_LAYER_API_VERSION) return answer(&version, sizeof version, room, to, size_ret);
    if (name == CL_LAYER_NAME) return answer(title, sizeof title, room, to, size_ret);
    return CL_INVALID_VALUE;
}

static void take_over(cl_icd_dispatch *table) {
    table->clGetContextInfo = get_context_info;
    table->clGetCommandQueueInfo = get_command_queue_info;
    table->clCreateBuffer = create_buffer;
    table->clBuildProgram = build_program;
    table->clCompileProgram = compile_program;
    table->clLinkProgram = link_program;
    table->clCreateProgramWithSource = create_program_with_source;
    table->clCreateProgramWithBinary = create_program_with_binary;
    table->clCreateProgramWithIL = create_program_with_il;
    table->clRetainProgram = retain_program;
    table->clReleaseProgram = release_program;
    table->clSetProgramSpecializationConstant = set_specialization_constant;
    table->clGetProgramInfo = get_program_info;
    table->clGetProgramBuildInfo = get_program_build_info;
    table->clCreateKernel = create_kernel;
    table->clCreateKernelsInProgram = create_kernels_in_program;
    table->clCloneKernel = clone_kernel;
    table->clRetainKernel = retain_kernel;
    table->clReleaseKernel = release_kernel;
    table->clGetKernelInfo = get_kernel_info;
    table->clGetKernelArgInfo = get_kernel_arg_info;
    table->clEnqueueNDRangeKernel = enqueue_nd_range_kernel;
    table->clGetExtensionFunctionAddress = get_extension;
    table->clGetExtensionFunctionAddressForPlatform = get_extension_for_platform;
}

/* A process may have several loaders, each with its own table. All tables lead to the same functions, which
   call the first loader: it finds the driver by the handle, whichever loader that came from. Contexts of the others
   are their own to make, as the first may not have their platforms. */
EXPORTED cl_int clInitLayer(cl_uint count, const cl_icd_dispatch *next, cl_uint *count_ret,
                            const cl_icd_dispatch **table_ret) {
    enum { FUNCTIONS = sizeof(cl_icd_dispatch) / sizeof(void *) };
    static cl_icd_dispatch tables[LOADERS];
    static atomic_uint taken;
    cl_uint functions = count < FUNCTIONS ? count : FUNCTIONS;
    if (!next || !count_ret || !table_ret) return CL_INVALID_VALUE;
    unsigned mine = atomic_fetch_add(&taken, 1);
    if (mine >= LOADERS) return CL_OUT_OF_RESOURCES;
    memcpy(&tables[mine], next, functions * sizeof(void *));
    if (mine == 0) {
        memcpy(&below, next, functions * sizeof(void *));
        begin_handles();
        begin_builds();
        wire_begin();
        wire_note("loaded");
        if (wire_asks()) {
            tables[0].clCreateContext = create_context;
            tables[0].clCreateContextFromType = create_context_from_type;
        }
    }
    if (wire_asks() || wire_requires()) take_over(&tables[mine]);
    *count_ret = functions;
    *table_ret = &tables[mine];
    return CL_SUCCESS;
}

/* Khronos' newer loaders look only for this one, which older headers do not declare. */
EXPORTED cl_int clInitLayerWithProperties(cl_uint count, const cl_icd_dispatch *next,
                                          cl_uint *count_ret, const cl_icd_dispatch **table_ret,
                                          const cl_ulong *properties) {
    (void)properties; /* none exists */
    return clInitLayer(count, next, count_ret, table_ret);
}
