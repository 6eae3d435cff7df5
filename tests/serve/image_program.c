/* A program that compiles the source in a file by one compiler, and prints what it got: once for each line that it
   reads, whose text is the directory to be in. It has no cache. Usage: by OpenCL, with OPENCL defined,
   program PLATFORM SOURCE OPTIONS; else program LIBRARY (nvrtc or hiprtc) SOURCE OPTION... */
#define CL_TARGET_OPENCL_VERSION 120
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef OPENCL
#include <CL/cl.h>
#endif

static uint64_t sum_of(const char *bytes, size_t size) {
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
    return sum;
}

static char *contents(const char *path) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    if (!file || !fread(text, 1, (1 << 16) - 1, file)) exit(2);
    fclose(file);
    return text;
}

#ifdef OPENCL
static cl_device_id device_of(const char *name, cl_context *context) {
    cl_platform_id platforms[8];
    cl_device_id device;
    cl_uint count = 0;
    char text[256];
    clGetPlatformIDs(8, platforms, &count);
    for (cl_uint i = 0; i < count; i++) {
        clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof text, text, NULL);
        if (strncmp(text, name, strlen(name))) continue;
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL)) continue;
        cl_int code;
        *context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
        if (!code) return device;
    }
    exit(3);
}

static void compile(char **words) {
    static cl_context context;
    static cl_device_id device;
    static cl_command_queue queue;
    cl_int code, value = -1;
    if (!context) {
        device = device_of(words[1], &context);
        queue = clCreateCommandQueue(context, device, 0, NULL);
    }
    const char *source = contents(words[2]);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    code = clBuildProgram(program, 1, &device, words[3], NULL, NULL);
    printf("built %d", code);
    if (!code) {
        cl_kernel kernel = clCreateKernel(program, "k", NULL);
        cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof value, NULL, NULL);
        size_t one = 1;
        clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL);
        clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
        printf(" value %d", value); /* binaries count their compiles and launches */
        clReleaseMemObject(buffer);
        clReleaseKernel(kernel);
    }
    clReleaseProgram(program);
}
#else
static void *named(void *library, const char *prefix, const char *name) {
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    void *found = dlsym(library, whole);
    if (!found) exit(4);
    return found;
}

static void compile(char **words) {
    static void *library;
    typedef void *program;
    const char *prefix = strstr(words[1], "nvrtc") ? "nvrtc" : "hiprtc";
    int count = 0;
    program one;
    size_t size;
    if (!library && !(library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL))) exit(3);
#define CALL(name, types, ...) ((int(*) types)named(library, prefix, name))(__VA_ARGS__)
    char *source = contents(words[2]);
    while (words[3 + count]) count++;
    CALL("CreateProgram", (program *, const char *, const char *, int, const char **, const char **), &one, source,
         "shown.cu", 0, NULL, NULL);
    int code = CALL("CompileProgram", (program, int, const char **), one, count, (const char **)words + 3);
    CALL("GetProgramLogSize", (program, size_t *), one, &size);
    char *log = calloc(1, size + 1);
    CALL("GetProgramLog", (program, char *), one, log);
    printf("compiled %d log %016llx", code, (unsigned long long)(code ? 0 : sum_of(log, strlen(log))));
    static const char *const kinds[][2] = {{"CUBIN", "PTX"}, {"Code", NULL}};
    for (int i = 0; !code && i < 2 && kinds[*prefix == 'h'][i]; i++) {
        char sized[32], plain[32];
        snprintf(sized, sizeof sized, "Get%sSize", kinds[*prefix == 'h'][i]);
        snprintf(plain, sizeof plain, "Get%s", kinds[*prefix == 'h'][i]);
        CALL(sized, (program, size_t *), one, &size);
        char *bytes = calloc(1, size + 1);
        CALL(plain, (program, char *), one, bytes);
        printf(" %s %zu %016llx", plain, size, (unsigned long long)sum_of(bytes, size));
    }
    CALL("DestroyProgram", (program *), &one);
}
#endif

int main(int count, char **words) {
    char folder[4096];
    while (count > 2 && fgets(folder, sizeof folder, stdin)) {
        folder[strcspn(folder, "\n")] = 0;
        if (chdir(folder)) return 5;
        compile(words);
        puts("");
        fflush(stdout);
    }
    return 0;
}
