/* A program that uses OpenCL in the usual ways, and prints a fact a line. Its output must not
   depend on whether its builds are served. Usage: program MODE PLATFORM */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 64
static const char *const STRINGS[] = {
    "__attribute__((reqd_work_group_size(4, 1, 1)))\n"
    "kernel void fixed(global int *out, local int *part) {\n"
    "  part[get_local_id(0)] = N; barrier(CLK_LOCAL_MEM_FENCE);\n",
    "  out[get_global_id(0)] = part[0] + 1; }\n"
    "constant int table[3] = {1, 2, 3};\n"
    "kernel void plain(global int *out, const int more) { out[get_global_id(0)] = N + more + table[2]; }\n",
};
static cl_context context;
static cl_device_id device, all[8];
static cl_uint devices = 1;
static cl_command_queue queue;
static const char *stage = "";

#define FACT(...) (printf("%s: ", stage), printf(__VA_ARGS__), putchar('\n'))

static cl_program create(void) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 2, (const char **)STRINGS, NULL, &code);
    if (code) FACT("create %d", code);
    return program;
}

static void say_bytes(const char *name, cl_int code, const unsigned char *value, size_t size) {
    printf("%s: %s %d %zu ", stage, name, code, size);
    for (size_t i = 0; !code && i < size; i++)
        printf(value[i] >= ' ' && value[i] < 127 ? "%c" : "\\%02x", value[i]);
    putchar('\n');
}

static void program_facts(cl_program program) {
    unsigned char value[65536];
    static const cl_uint as_bytes[] = {CL_PROGRAM_REFERENCE_COUNT, CL_PROGRAM_NUM_DEVICES, CL_PROGRAM_SOURCE,
                                       CL_PROGRAM_NUM_KERNELS, CL_PROGRAM_KERNEL_NAMES, CL_PROGRAM_IL,
                                       CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT,
                                       CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT, 0x7777};
    for (size_t i = 0; i < sizeof as_bytes / sizeof *as_bytes; i++) {
        size_t size = 0;
        char name[32];
        snprintf(name, sizeof name, "program %x", as_bytes[i]);
        cl_int code = clGetProgramInfo(program, as_bytes[i], sizeof value, value, &size);
        say_bytes(name, code, value, size);
        FACT("%s in 1 byte %d", name, clGetProgramInfo(program, as_bytes[i], 1, value, NULL));
        FACT("%s without room %d", name, clGetProgramInfo(program, as_bytes[i], 0, NULL, &size));
    }
    cl_context of = NULL;
    cl_device_id its[8] = {0};
    FACT("context %d", clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof of, &of, NULL));
    FACT("context is its own %d", of == context);
    FACT("devices %d", clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof its, its, NULL));
    FACT("devices are its own %d", !memcmp(its, all, devices * sizeof *its));
    size_t sizes[8] = {0}, size = 0;
    FACT("sizes %d", clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, &size));
    FACT("sizes %zu", size / sizeof *sizes);
    unsigned char *binaries[8] = {0};
    for (cl_uint i = 0; i < devices; i++) {
        FACT("has binary %d", sizes[i] > 0);
        binaries[i] = sizes[i] ? calloc(1, sizes[i]) : NULL;
    }
    FACT("binaries in 1 byte %d", clGetProgramInfo(program, CL_PROGRAM_BINARIES, 1, binaries, NULL));
    FACT("binaries %d",
         clGetProgramInfo(program, CL_PROGRAM_BINARIES, devices * sizeof *binaries, binaries, &size));
    FACT("binaries %zu", size / sizeof *binaries);
    for (cl_uint i = 0; i < devices; i++) {
        size_t used = 0;
        for (size_t at = 0; at < sizes[i]; at++) used += !!binaries[i][at];
        FACT("binary is filled %d", used > 0);
        free(binaries[i]);
    }
    for (cl_uint i = 0; i < devices; i++) {
        for (cl_uint name = CL_PROGRAM_BUILD_STATUS; name <= CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE; name++) {
            char text[32];
            snprintf(text, sizeof text, "build %u %x", i, name);
            cl_int code = clGetProgramBuildInfo(program, all[i], name, sizeof value, value, &size);
            say_bytes(text, code, value, size);
            FACT("%s in 1 byte %d", text, clGetProgramBuildInfo(program, all[i], name, 1, value, NULL));
        }
    }
    FACT("build of nothing %d", clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BUILD_STATUS, 4, value, NULL));
}

static void kernel_facts(cl_kernel kernel, cl_program program) {
    unsigned char value[4096];
    size_t size = 0;
    static const cl_uint infos[] = {CL_KERNEL_FUNCTION_NAME, CL_KERNEL_NUM_ARGS, CL_KERNEL_REFERENCE_COUNT,
                                    CL_KERNEL_ATTRIBUTES};
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel %x", infos[i]);
        cl_int code = clGetKernelInfo(kernel, infos[i], sizeof value, value, &size);
        say_bytes(name, code, value, size);
    }
    cl_program of = NULL;
    cl_context its = NULL;
    FACT("its program %d", clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, &size));
    FACT("its program is the one %d", of == program);
    FACT("its program in 1 byte %d", clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, 1, &of, NULL));
    FACT("its context %d", clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof its, &its, NULL));
    FACT("its context is the one %d", its == context);
    for (cl_uint name = CL_KERNEL_WORK_GROUP_SIZE; name <= CL_KERNEL_PRIVATE_MEM_SIZE; name++) {
        char text[32];
        snprintf(text, sizeof text, "group %x", name);
        cl_int code = clGetKernelWorkGroupInfo(kernel, device, name, sizeof value, value, &size);
        say_bytes(text, code, value, size);
    }
    for (cl_uint at = 0; at < 3; at++) {
        for (cl_uint name = CL_KERNEL_ARG_ADDRESS_QUALIFIER; name <= CL_KERNEL_ARG_NAME; name++) {
            char text[32];
            snprintf(text, sizeof text, "argument %u %x", at, name);
            cl_int code = clGetKernelArgInfo(kernel, at, name, sizeof value, value, &size);
            say_bytes(text, code, value, size);
        }
    }
}

static void launch(cl_kernel kernel, int with_local_memory, const size_t *local) {
    int out[SIZE] = {0}, more = 5;
    size_t global = SIZE;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof out, out, NULL);
    cl_int code = clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
    code |= with_local_memory ? clSetKernelArg(kernel, 1, 4 * sizeof(int), NULL)
                              : clSetKernelArg(kernel, 1, sizeof more, &more);
    cl_int launched = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, local, 0, NULL, NULL);
    cl_int read = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
    FACT("launch %d %d %d gives %d %d", code, launched, read, out[0], out[SIZE - 1]);
    clReleaseMemObject(buffer);
}

static void all_facts(cl_program program) {
    cl_int code;
    cl_kernel made[3] = {0};
    cl_uint count = 0;
    size_t four = 4, three = 3;
    program_facts(program);
    cl_kernel none = clCreateKernel(program, "missing", &code);
    FACT("missing kernel %d %d", none != NULL, code);
    FACT("count kernels %d", clCreateKernelsInProgram(program, 0, NULL, &count));
    FACT("kernels %u", count);
    FACT("too few kernels %d", clCreateKernelsInProgram(program, 1, made, &count));
    FACT("kernels %d", clCreateKernelsInProgram(program, 3, made, NULL));
    for (int i = 0; i < 2; i++) {
        if (made[i]) kernel_facts(made[i], program);
        if (made[i]) FACT("release %d", clReleaseKernel(made[i]));
    }
    cl_kernel plain = clCreateKernel(program, "plain", &code);
    if (!plain) return;
    cl_kernel fixed = clCreateKernel(program, "fixed", &code);
    launch(plain, 0, NULL);
    launch(plain, 0, &four);
    launch(plain, 0, &three);
    launch(fixed, 1, &four);
    FACT("retain %d", clRetainKernel(plain));
    FACT("release %d", clReleaseKernel(plain));
    cl_kernel clone = clCloneKernel(plain, &code);
    FACT("clone %d", code);
    if (clone) kernel_facts(clone, program);
    if (clone) clReleaseKernel(clone);
    FACT("build with kernels %d", clBuildProgram(program, 0, NULL, "-DN=9", NULL, NULL));
    clReleaseKernel(fixed);
    clReleaseKernel(plain);
}

static atomic_int notified;
static void *told;
static cl_program told_of;
static void CL_CALLBACK on_built(cl_program program, void *data) {
    told_of = program;
    told = data;
    atomic_fetch_add(&notified, 1);
}

static atomic_int ended;
static void CL_CALLBACK on_end(cl_program program, void *data) {
    (void)program;
    (void)data;
    atomic_fetch_add(&ended, 1);
}

static void one_device(void) {
    stage = "built";
    cl_program program = create();
    program_facts(program);
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=3", NULL, NULL));
    all_facts(program);
    stage = "built again";
    FACT("build %d", clBuildProgram(program, 1, &device, "-DN=3 -DUNUSED", NULL, NULL));
    all_facts(program);
    stage = "failing";
    clReleaseProgram(program);
    program = create();
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=missing", NULL, NULL));
    cl_build_status status = 77;
    FACT("status %d", clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    FACT("status %d", status);
    cl_int code;
    clCreateKernel(program, "plain", &code);
    FACT("kernel %d", code);
    FACT("build %d", clBuildProgram(program, 1, &device, "-DN=4", NULL, NULL));
    all_facts(program);
    clReleaseProgram(program);
    program = create();
    stage = "anew";
    FACT("build %d", clBuildProgram(program, 1, &device, "-DN=4", NULL, NULL));
    all_facts(program);
    stage = "refused";
    FACT("no device %d", clBuildProgram(program, 1, NULL, "-DN=4", NULL, NULL));
    FACT("no count %d", clBuildProgram(program, 0, &device, "-DN=4", NULL, NULL));
    FACT("no notify %d", clBuildProgram(program, 0, NULL, "-DN=4", NULL, &device));
    all_facts(program);
    stage = "counted";
    FACT("retain %d", clRetainProgram(program));
    program_facts(program);
    FACT("release %d", clReleaseProgram(program));
    FACT("callback %d", clSetProgramReleaseCallback(program, on_end, NULL));
    FACT("constant %d", clSetProgramSpecializationConstant(program, 0, 4, &code));
    cl_kernel kernel = clCreateKernel(program, "plain", &code);
    FACT("kernel %d", code);
    program_facts(program);
    stage = "outlived";
    FACT("release %d", clReleaseProgram(program));
    FACT("ended %d", atomic_load(&ended));
    kernel_facts(kernel, program);
    launch(kernel, 0, NULL);
    FACT("ended %d", atomic_load(&ended));
    FACT("release %d", clReleaseKernel(kernel));
    FACT("ended %d", atomic_load(&ended));
    stage = "notified";
    program = create();
    int mark;
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=5", on_built, &mark));
    while (!atomic_load(&notified)) usleep(1000);
    FACT("notified %d %d %d", atomic_load(&notified), told_of == program, told == &mark);
    all_facts(program);
    stage = "compiled";
    FACT("release %d", clReleaseProgram(program));
    program = create();
    FACT("compile %d", clCompileProgram(program, 0, NULL, "-DN=6", 0, NULL, NULL, NULL, NULL));
    program_facts(program);
    cl_program linked = clLinkProgram(context, 0, NULL, "", 1, &program, NULL, NULL, &code);
    FACT("link %d", code);
    if (linked) all_facts(linked);
    if (linked) clReleaseProgram(linked);
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=3", NULL, NULL));
    all_facts(program);
    FACT("release %d", clReleaseProgram(program));
    stage = "many";
    for (int i = 0; i < 40; i++) { /* so that addresses are used again */
        char options[] = "-DN=3";
        options[4] = (char)('3' + i % 3);
        program = create();
        cl_int built = clBuildProgram(program, 0, NULL, options, NULL, NULL);
        kernel = clCreateKernel(program, "plain", &code);
        if (i % 2) clReleaseProgram(program);
        FACT("%d %d", built, code);
        launch(kernel, 0, NULL);
        clReleaseKernel(kernel);
        if (!(i % 2)) clReleaseProgram(program);
    }
}

static const char *const APART[] = {
    "int twice(int a);\n"
    "__attribute__((reqd_work_group_size(4, 1, 1)))\n"
    "kernel void fixed(global int *out, local int *part) {\n"
    "  part[get_local_id(0)] = N; barrier(CLK_LOCAL_MEM_FENCE); out[get_global_id(0)] = twice(part[0]); }\n"
    "kernel void plain(global int *out, const int more) { out[get_global_id(0)] = twice(N) + more; }\n",
    "__attribute__((weak)) int twice(int a) { return F * a; }\n",
};

static cl_program compiled(cl_context in, int which, const char *options) {
    cl_int code;
    cl_program program = clCreateProgramWithSource(in, 1, (const char **)&APART[which], NULL, &code);
    code = clCompileProgram(program, 0, NULL, options, 0, NULL, NULL, NULL, NULL);
    if (code) FACT("compile %d", code);
    return program;
}

static cl_program linked(const char *options, cl_uint count, ...) {
    cl_program parts[8];
    cl_int code = 77;
    va_list given;
    va_start(given, count);
    for (cl_uint i = 0; i < count; i++) parts[i] = va_arg(given, cl_program);
    va_end(given);
    cl_program program = clLinkProgram(context, 0, NULL, options, count, parts, NULL, NULL, &code);
    FACT("link %d %d", program != NULL, code);
    return program;
}

static void use_linked(cl_program program) {
    cl_int code;
    if (!program) return;
    cl_kernel kernel = clCreateKernel(program, "plain", &code);
    FACT("kernel %d", code);
    if (kernel) launch(kernel, 0, NULL);
    if (kernel) clReleaseKernel(kernel);
    clReleaseProgram(program);
}

static void apart(cl_platform_id platform) {
    cl_int code;
    stage = "parts";
    cl_program first = compiled(context, 0, "-DN=3"), second = compiled(context, 1, "-DF=2"), program, other;
    program_facts(first);
    stage = "linked";
    program = linked("-cl-fast-relaxed-math -cl-denorms-are-zero", 2, first, second); /* which PoCL refuses */
    if (!program) program = linked("", 2, first, second);
    all_facts(program);
    FACT("retain %d", clRetainProgram(program));
    program_facts(program);
    FACT("release %d", clReleaseProgram(program));
    FACT("constant %d", clSetProgramSpecializationConstant(program, 0, 4, &code));
    stage = "parts after a link";
    program_facts(first);
    program_facts(second);
    stage = "inputs";
    other = linked("", 2, program, second);
    if (other) clReleaseProgram(other);
    other = linked("", 1, program);
    if (other) clReleaseProgram(other);
    FACT("no parts %d", clLinkProgram(context, 0, NULL, "", 0, NULL, NULL, NULL, &code) != NULL);
    FACT("no parts %d", code);
    FACT("without a code %d", (other = clLinkProgram(context, 0, NULL, "", 2, (cl_program[]){first, second}, NULL,
                                                     NULL, NULL)) != NULL);
    use_linked(other);
    FACT("one device %d", (other = clLinkProgram(context, 1, &device, "", 2, (cl_program[]){first, second}, NULL,
                                                 NULL, &code)) != NULL);
    FACT("one device %d", code);
    if (other) program_facts(other);
    use_linked(other);
    FACT("no device %d", clLinkProgram(context, 1, NULL, "", 2, (cl_program[]){first, second}, NULL, NULL, &code) != NULL);
    FACT("no device %d", code);
    stage = "outlived";
    cl_kernel kernel = clCreateKernel(program, "plain", &code);
    FACT("callback %d", clSetProgramReleaseCallback(program, on_end, NULL));
    FACT("release %d", clReleaseProgram(program));
    kernel_facts(kernel, program);
    launch(kernel, 0, NULL);
    FACT("release %d", clReleaseKernel(kernel));
    FACT("ended %d", atomic_load(&ended));
    stage = "failed";
    other = linked("", 1, first);
    if (other) clReleaseProgram(other);
    linked("-no-such-option", 2, first, second);
    stage = "order";
    cl_program third = compiled(context, 1, "-DF=5");
    use_linked(linked("", 3, first, second, third));
    use_linked(linked("", 3, first, third, second));
    use_linked(linked("", 2, third, first));
    use_linked(linked("", 3, first, second, second));
    stage = "compiled again";
    FACT("compile %d", clCompileProgram(second, 0, NULL, "-DF=7", 0, NULL, NULL, NULL, NULL));
    use_linked(linked("", 2, first, second));
    FACT("compile %d", clCompileProgram(second, 1, &device, "-DF=missing", 0, NULL, NULL, NULL, NULL));
    char vendor[256] = "";
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof vendor, vendor, NULL);
    if (strstr(vendor, "Intel")) use_linked(linked("", 2, first, second)); /* it links the earlier compiles */
    FACT("compile %d", clCompileProgram(second, 1, &device, "-DF=2", 0, NULL, NULL, NULL, NULL));
    use_linked(linked("", 2, first, second));
    stage = "built";
    cl_program whole = create();
    FACT("compile %d", clCompileProgram(whole, 0, NULL, "-DN=6", 0, NULL, NULL, NULL, NULL));
    use_linked(linked("", 1, whole));
    FACT("build %d", clBuildProgram(whole, 0, NULL, "-DN=4", NULL, NULL));
    other = linked("", 1, whole);
    if (other) clReleaseProgram(other);
    clReleaseProgram(whole);
    stage = "header";
    const char *with = "#include <it.h>\nint twice(int a) { return F * a; }\n", *it = "#define F 9\n", *name = "it.h";
    whole = clCreateProgramWithSource(context, 1, &with, NULL, &code);
    cl_program header = clCreateProgramWithSource(context, 1, &it, NULL, &code);
    FACT("compile %d", clCompileProgram(whole, 0, NULL, "", 1, &header, &name, NULL, NULL));
    use_linked(linked("", 2, first, whole));
    clReleaseProgram(whole);
    whole = clCreateProgramWithSource(context, 1, &with, NULL, &code);
    cl_program other_header = clCreateProgramWithSource(context, 1, (const char *[]){"#define F 4\n"}, NULL, &code);
    FACT("compile %d", clCompileProgram(whole, 0, NULL, "", 1, &other_header, &name, NULL, NULL));
    use_linked(linked("", 2, first, whole));
    clReleaseProgram(whole);
    stage = "called back";
    int mark;
    whole = create();
    FACT("compile %d", clCompileProgram(whole, 0, NULL, "-DN=6", 0, NULL, NULL, on_built, &mark));
    while (!atomic_load(&notified)) usleep(1000);
    use_linked(linked("", 1, whole));
    program = clLinkProgram(context, 0, NULL, "", 2, (cl_program[]){first, third}, on_built, &mark, &code);
    while (atomic_load(&notified) < 2) usleep(1000);
    FACT("link %d %d %d", code, told_of == program, told == &mark);
    use_linked(program);
    clReleaseProgram(whole);
    stage = "library";
    whole = linked("-create-library", 1, third);
    if (whole) program_facts(whole);
    if (whole) use_linked(linked("", 2, first, whole));
    if (whole) clReleaseProgram(whole);
    stage = "other context";
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context elsewhere = clCreateContext(properties, 1, &device, NULL, NULL, &code);
    whole = compiled(elsewhere, 1, "-DF=2");
    other = linked("", 2, first, whole);
    if (other) clReleaseProgram(other);
    other = clLinkProgram(elsewhere, 0, NULL, "", 2, (cl_program[]){first, second}, NULL, NULL, &code);
    FACT("link %d %d", other != NULL, code);
    if (other) clReleaseProgram(other);
    clReleaseProgram(whole);
    clReleaseContext(elsewhere);
    stage = "parts are gone";
    program = linked("", 2, first, second);
    clReleaseProgram(first);
    clReleaseProgram(second);
    clReleaseProgram(third);
    all_facts(program);
    clReleaseProgram(program);
    stage = "many";
    for (int i = 0; i < 12; i++) { /* so that addresses are used again */
        char options[] = "-DF=3";
        options[4] = (char)('3' + i % 3);
        first = compiled(context, 0, "-DN=3");
        second = compiled(context, 1, options);
        program = linked("", 2, first, second);
        clReleaseProgram(i % 2 ? first : second);
        use_linked(program);
        clReleaseProgram(i % 2 ? second : first);
    }
}

/* Two halves of the device, or the device itself if it has none. */
static void two_devices(cl_platform_id platform) {
    cl_device_partition_property halves[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1, 0, 0};
    FACT("split %d", clCreateSubDevices(device, halves, 8, all, &devices));
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_int code;
    context = clCreateContext(properties, devices, all, NULL, NULL, &code);
    FACT("context %d %u", code, devices);
    device = all[0];
    queue = clCreateCommandQueueWithProperties(context, device, NULL, &code);
    stage = "both";
    cl_program program = create();
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=3", NULL, NULL));
    all_facts(program);
    clReleaseProgram(program);
    stage = "turned";
    program = create();
    cl_device_id turned[] = {all[1], all[0]};
    FACT("build %d", clBuildProgram(program, 2, turned, "-DN=3", NULL, NULL));
    all_facts(program);
    clReleaseProgram(program);
    stage = "first";
    program = create();
    FACT("build %d", clBuildProgram(program, 1, all, "-DN=3", NULL, NULL));
    program_facts(program);
    cl_kernel kernel = clCreateKernel(program, "plain", &code);
    FACT("kernel %d", code);
    kernel_facts(kernel, program);
    launch(kernel, 0, NULL);
    clReleaseKernel(kernel);
    stage = "then second";
    FACT("build %d", clBuildProgram(program, 1, all + 1, "-DN=4", NULL, NULL));
    all_facts(program);
    stage = "then both";
    FACT("build %d", clBuildProgram(program, 2, all, "-DN=5", NULL, NULL));
    all_facts(program);
    clReleaseProgram(program);
    stage = "linked for both";
    cl_program first = compiled(context, 0, "-DN=3"), second = compiled(context, 1, "-DF=2");
    program = linked("", 2, first, second);
    all_facts(program);
    clReleaseProgram(program);
    stage = "linked turned";
    program = clLinkProgram(context, 2, turned, "", 2, (cl_program[]){first, second}, NULL, NULL, &code);
    FACT("link %d", code);
    if (!code) program_facts(program);
    if (program) clReleaseProgram(program);
    stage = "linked for one";
    program = clLinkProgram(context, 1, all, "", 2, (cl_program[]){first, second}, NULL, NULL, &code);
    FACT("link %d", code);
    if (!code) all_facts(program);
    if (program) clReleaseProgram(program);
    stage = "compiled for one";
    FACT("compile %d", clCompileProgram(second, 1, all + 1, "-DF=5", 0, NULL, NULL, NULL, NULL));
    program = clLinkProgram(context, 1, all + 1, "", 2, (cl_program[]){first, second}, NULL, NULL, &code);
    FACT("link %d", code);
    if (program) clReleaseProgram(program);
    clReleaseProgram(first);
    clReleaseProgram(second);
}

static void *link_in_thread(void *shared) {
    for (int i = 0; i < 6; i++) {
        char options[] = "-DF=3";
        options[4] = (char)('3' + i % 4);
        cl_int code;
        cl_program own = compiled(context, 1, options);
        cl_program both = clLinkProgram(context, 0, NULL, "", 2, (cl_program[]){shared, own}, NULL, NULL, &code);
        if (code) return "link";
        clReleaseProgram(own);
        cl_kernel kernel = clCreateKernel(both, "plain", &code);
        clReleaseProgram(both);
        if (!kernel) return "kernel";
        cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, NULL, &code);
        int out[SIZE] = {0}, more = 5;
        size_t global = SIZE;
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof out, NULL, &code);
        clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
        clSetKernelArg(kernel, 1, sizeof more, &more);
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
        clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
        if (out[7] != (options[4] - '0') * 3 + 5) return "output";
        clReleaseMemObject(buffer);
        clReleaseCommandQueue(queue);
        clReleaseKernel(kernel);
    }
    return "well";
}

static void *build_in_thread(void *data) {
    for (int i = 0; i < 12; i++) {
        char options[] = "-DN=3";
        options[4] = (char)('3' + (i + (int)(size_t)data) % 4);
        cl_int code;
        cl_program program = create();
        if (clBuildProgram(program, 0, NULL, options, NULL, NULL)) return "build";
        cl_kernel kernel = clCreateKernel(program, "plain", &code);
        if (!kernel) return "kernel";
        clReleaseProgram(program);
        cl_command_queue own = clCreateCommandQueueWithProperties(context, device, NULL, &code);
        int out[SIZE] = {0}, more = 5;
        size_t global = SIZE;
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof out, NULL, &code);
        clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
        clSetKernelArg(kernel, 1, sizeof more, &more);
        clEnqueueNDRangeKernel(own, kernel, 1, NULL, &global, NULL, 0, NULL, NULL);
        clEnqueueReadBuffer(own, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
        if (out[7] != options[4] - '0' + 5 + 3) return "output";
        clReleaseMemObject(buffer);
        clReleaseCommandQueue(own);
        clReleaseKernel(kernel);
    }
    return "well";
}

static void threads(void *(*work)(void *), void *shared) {
    pthread_t running[4];
    for (size_t i = 0; i < 4; i++) pthread_create(&running[i], NULL, work, shared ? shared : (void *)i);
    for (size_t i = 0; i < 4; i++) {
        void *end;
        pthread_join(running[i], &end);
        FACT("%s", (char *)end);
    }
}

static void *link_pair(void *given) {
    cl_program *parts = given;
    cl_int code;
    parts[2] = clLinkProgram(context, 0, NULL, "", 2, parts, NULL, NULL, &code);
    return parts[2] && !code ? "well" : "link";
}

/* A part is compiled again as soon as the file is there that a variable names, while another thread links it. */
static void racing(void) {
    cl_program parts[3] = {compiled(context, 0, "-DN=3"), compiled(context, 1, "-DF=2")};
    pthread_t running;
    void *end;
    pthread_create(&running, NULL, link_pair, parts);
    while (access(getenv("PROGRAM_GO"), F_OK)) usleep(1000);
    FACT("compile %d", clCompileProgram(parts[1], 0, NULL, "-DF=9", 0, NULL, NULL, NULL, NULL));
    pthread_join(running, &end);
    FACT("%s", (char *)end);
    use_linked(parts[2]);
}

/* Children that are forked while other threads build, and ask about what they inherited. They cannot do more:
   a driver's own locks may be held. */
static void forks(void) {
    pthread_t running[2];
    cl_int code;
    cl_program program = create();
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=3", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "plain", &code);
    for (size_t i = 0; i < 2; i++) pthread_create(&running[i], NULL, build_in_thread, (void *)i);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) {
            cl_program of = NULL;
            char options[16];
            code = clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, NULL);
            code |= clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL);
            _exit(code || of != program || strcmp(options, "-DN=3"));
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status) FACT("child %x", status);
    }
    for (size_t i = 0; i < 2; i++) {
        void *end;
        pthread_join(running[i], &end);
        FACT("%s", (char *)end);
    }
    clReleaseKernel(kernel);
    clReleaseProgram(program);
}

/* One build before and one after closing every descriptor that the program did not open itself. */
static void closed(void) {
    cl_program program = create();
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=3", NULL, NULL));
    clReleaseProgram(program);
    close(0);
    for (int fd = 3; fd < 1024; fd++) close(fd);
    program = create();
    FACT("build %d", clBuildProgram(program, 0, NULL, "-DN=4", NULL, NULL));
    FACT("lowest is free %d", dup(1));
    clReleaseProgram(program);
}

/* A handle is used for the last time while the process ends. */
static cl_program last;
static void at_exit(void) {
    cl_int code;
    stage = "exit";
    FACT("build %d", clBuildProgram(last, 0, NULL, "-DN=8", NULL, NULL));
    cl_kernel kernel = clCreateKernel(last, "plain", &code);
    launch(kernel, 0, NULL);
    clReleaseKernel(kernel);
    clReleaseProgram(last);
}

int main(int count, char **arguments) {
    cl_platform_id platforms[8], platform = NULL;
    cl_uint found = 0;
    cl_int code;
    if (count < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    clGetPlatformIDs(8, platforms, &found);
    for (cl_uint i = 0; i < found && i < 8; i++) {
        char name[256] = "";
        clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
        if (!strcmp(name, arguments[2])) platform = platforms[i];
    }
    if (!platform || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 3;
    all[0] = device;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    context = clCreateContext(properties, 1, &device, NULL, NULL, &code);
    queue = clCreateCommandQueueWithProperties(context, device, NULL, &code);
    const char *mode = arguments[1];
    stage = mode;
    if (!strcmp(mode, "facts")) one_device();
    if (!strcmp(mode, "two")) two_devices(platform);
    if (!strcmp(mode, "threads")) threads(build_in_thread, NULL);
    if (!strcmp(mode, "apart")) apart(platform);
    if (!strcmp(mode, "racing")) racing();
    if (!strcmp(mode, "linking")) threads(link_in_thread, compiled(context, 0, "-DN=3"));
    if (!strcmp(mode, "forks")) forks();
    if (!strcmp(mode, "closed")) closed();
    if (!strcmp(mode, "exit")) {
        last = create();
        FACT("build %d", clBuildProgram(last, 0, NULL, "-DN=3", NULL, NULL));
        atexit(at_exit);
    }
    return 0;
}
