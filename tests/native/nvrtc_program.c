/* A program that makes every query to NVRTC, and prints every result. Its output must not depend
   on whether its compiles are served. Usage: program MODE [LIBRARY...]

   Linked with NVRTC it is compiled with LINKED; else it loads the library whose path is its second argument. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define MOST 4
#define OFTEN 20

typedef struct _nvrtcProgram *nvrtcProgram;
#define FUNCTIONS(each)                                                                                          \
    each(nvrtcVersion, (int *, int *))                                                                           \
    each(nvrtcCreateProgram,                                                                                     \
         (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *))            \
    each(nvrtcDestroyProgram, (nvrtcProgram *)) each(nvrtcAddNameExpression, (nvrtcProgram, const char *))       \
    each(nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))                                          \
    each(nvrtcGetLoweredName, (nvrtcProgram, const char *, const char **))                                       \
    GETTERS(each, ProgramLog) GETTERS(each, CUBIN) GETTERS(each, PTX) GETTERS(each, LTOIR)                       \
    GETTERS(each, OptiXIR)
#define GETTERS(each, name)                                                                                      \
    each(nvrtcGet##name##Size, (nvrtcProgram, size_t *)) each(nvrtcGet##name, (nvrtcProgram, char *))

#ifdef LINKED
#define DECLARE(name, parameters) extern int name parameters;
FUNCTIONS(DECLARE)
static void *load(const char *path) {
    (void)path;
    return dlopen(NULL, RTLD_NOW);
}
#else
#define DECLARE(name, parameters) static int(*name) parameters;
FUNCTIONS(DECLARE)
static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *left = dlerror(); /* which must be empty if it was loaded */
    if (left) puts(left);
    if (!library) exit(9);
#define FIND(name, parameters) name = (int(*) parameters)dlsym(library, #name);
    FUNCTIONS(FIND)
    return library;
}
#endif

static const struct {
    const char *name, *source, *options[MOST], *expressions[MOST], *names[MOST], *headers[MOST];
} cases[] = {
    {"plain.cu", "extern \"C\" __global__ void k(int *o) { *o = 7; }", {"-arch=sm_90"}, {0}, {0}, {0}},
    {"template.cu",
     "template <class T> __global__ void k(T *o) { *o = T(7); }",
     {"-arch=sm_90", "-std=c++17"},
     {"k<int>", "k<float>", "k<int>"},
     {0},
     {0}},
    {"warned.cu", "extern \"C\" __global__ void k(int *o) { int u; *o = 7; }", {"-arch=sm_80"}, {0}, {0}, {0}},
    {"wrong.cu", "oops", {"-arch=sm_80"}, {0}, {0}, {0}},
    {"refused.cu", "extern \"C\" __global__ void k() {}", {"--no-such-option"}, {0}, {0}, {0}},
    {"unknown.cu", "extern \"C\" __global__ void k() {}", {"-arch=sm_90"}, {"nothing<7>"}, {0}, {0}},
    {"memory.cu",
     "#include \"a/b.h\"\nextern \"C\" __global__ void k(int *o) { *o = SEVEN; }",
     {"-arch=sm_90"},
     {0},
     {"a/b.h", "c.h"},
     {"#include <c.h>\n", "#define SEVEN 7\n"}},
    {NULL, "extern \"C\" __global__ void k(int *o) { *o = 7; }", {0}, {0}, {0}, {0}},
    {"lto.cu", "extern \"C\" __global__ void k(int *o) { *o = 7; }", {"-arch=sm_90", "-dlto"}, {0}, {0}, {0}},
    {"optix.cu", "extern \"C\" __global__ void k(int *o) { *o = 7; }", {"-arch=compute_90", "--optix-ir"}, {0}, {0}, {0}},
    {"lines.cu", "extern \"C\" __global__ void k(int *o) { *o = 7; }", {"-arch=sm_90", "-lineinfo"}, {0}, {0}, {0}},
    {"static.cu", "static __device__ int x = 3; extern \"C\" __global__ void k(int *o) { *o = x++; }", {"-arch=sm_90"}, {0}, {0}, {0}},
};

static int count(const char *const *texts) {
    int number = 0;
    while (number < MOST && texts[number]) number++;
    return number;
}

static void get(FILE *out, const char *what, nvrtcProgram program, int (*size_of)(nvrtcProgram, size_t *),
                int (*give)(nvrtcProgram, char *)) {
    size_t size = 777;
    unsigned long hash = 5381;
    fprintf(out, "  %s %d", what, size_of(program, &size));
    char *bytes = calloc(1, size + 1);
    fprintf(out, " %zu %d", size, give(program, bytes));
    for (size_t i = 0; i < size; i++) hash = hash * 33 + (unsigned char)bytes[i];
    fprintf(out, " %016lx %d %d\n", hash, size_of(program, NULL), give(program, NULL));
    if (!strcmp(what, "log")) fprintf(out, "%s\n", bytes);
    free(bytes);
}

static void get_all(FILE *out, nvrtcProgram program) {
    get(out, "log", program, nvrtcGetProgramLogSize, nvrtcGetProgramLog);
    get(out, "cubin", program, nvrtcGetCUBINSize, nvrtcGetCUBIN);
    get(out, "ptx", program, nvrtcGetPTXSize, nvrtcGetPTX);
    get(out, "ltoir", program, nvrtcGetLTOIRSize, nvrtcGetLTOIR);
    get(out, "optixir", program, nvrtcGetOptiXIRSize, nvrtcGetOptiXIR);
}

static void compile(FILE *out, int number, int times) {
    const char *const *expressions = cases[number].expressions, *lowered = "", *first = "";
    nvrtcProgram program = NULL;
    fprintf(out, "%s\n create %d\n", cases[number].name ? cases[number].name : "-",
            nvrtcCreateProgram(&program, cases[number].source, cases[number].name, count(cases[number].names),
                               cases[number].headers, cases[number].names));
    fprintf(out, " early name %d\n", nvrtcGetLoweredName(program, "k<int>", &lowered));
    for (int i = 0; i < count(expressions); i++)
        fprintf(out, " add %d\n", nvrtcAddNameExpression(program, expressions[i]));
    for (int i = 0; i < times; i++) {
        fprintf(out, " compile %d\n", nvrtcCompileProgram(program, count(cases[number].options), cases[number].options));
        fprintf(out, " late add %d %d\n", nvrtcAddNameExpression(program, "k<bool>"), nvrtcAddNameExpression(program, NULL));
        get_all(out, program);
        for (int each = 0; each < count(expressions); each++) {
            int code = nvrtcGetLoweredName(program, expressions[each], &lowered);
            fprintf(out, " name %d %s\n", code, code ? "" : lowered);
            if (!code && !*first) first = lowered;
        }
        fprintf(out, " another name %d %d\n", nvrtcGetLoweredName(program, "k<char>", &lowered),
                nvrtcGetLoweredName(program, NULL, &lowered));
    }
    fprintf(out, " first name %s\n", first); /* which is the program's until it is destroyed */
    fprintf(out, " destroy %d", nvrtcDestroyProgram(&program));
    fprintf(out, " %d %d\n", program == NULL, nvrtcDestroyProgram(&program));
}

static void *compile_all(void *place) {
    size_t size;
    FILE *out = open_memstream(place, &size);
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) compile(out, i, 1);
    fclose(out);
    return NULL;
}

static void in_threads(void) {
    pthread_t threads[THREADS];
    char *texts[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, compile_all, &texts[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (strcmp(texts[i], texts[0])) printf("thread %d had other answers\n", i);
    }
    fputs(texts[0], stdout);
    for (int i = 0; i < THREADS; i++) free(texts[i]);
}

/* One handle that is compiled with other options each time, some of which fail. */
static void change(void) {
    static const char *const options[][3] = {
        {"-arch=sm_90", "-DV=1"}, {"-arch=sm_90", "-DV=oops"}, {"--no-such-option"}, {"-arch=compute_90", "-DV=2"},
        {"--no-such-option"}, {"-arch=sm_90", "-DV=3", "-dlto"}, {"-arch=sm_90", "-DV=4"}, {"-arch=sm_90", "-DV=oops"},
        {"-arch=compute_90", "-DV=5", "--optix-ir"}, {"-arch=sm_90", "-DV=1"}, {"--no-such-option"},
    };
    nvrtcProgram program;
    const char *lowered;
    nvrtcCreateProgram(&program, "template <class T> __global__ void k(T *o) { int u; *o = V; }", "p.cu", 0, NULL, NULL);
    nvrtcAddNameExpression(program, "k<int>");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        int number = options[i][2] ? 3 : options[i][1] ? 2 : 1;
        printf("compile %d\n", nvrtcCompileProgram(program, number, options[i]));
        get_all(stdout, program);
        int known = nvrtcGetLoweredName(program, "k<int>", &lowered);
        printf(" names %d %s %d", known, known ? "" : lowered, nvrtcGetLoweredName(program, "k<bool>", &lowered));
        printf(" %d\n", nvrtcAddNameExpression(program, "k<bool>"));
    }
    nvrtcDestroyProgram(&program);
}

static int never(void *payload, void *unused) { return *(int *)payload + 0 * (unused != NULL); }

int main(int given, char **arguments) {
    const char *mode = given > 1 ? arguments[1] : "plain";
    void *library = load(given > 2 ? arguments[2] : NULL);
    int major, minor, status;
    printf("version %d", nvrtcVersion(&major, &minor));
    printf(" %d.%d\n", major, minor);
    fflush(stdout);
    if (!strcmp(mode, "plain")) {
        for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) compile(stdout, i, 1);
    } else if (!strcmp(mode, "threads")) {
        in_threads();
    } else if (!strcmp(mode, "fork")) {
        compile(stdout, 0, 1);
        fflush(stdout);
        pid_t child = fork();
        compile(stdout, 1, 1);
        fflush(stdout);
        if (!child) _exit(0);
        waitpid(child, &status, 0);
        printf("the child ended with %d\n", status);
    } else if (!strcmp(mode, "again")) {
        for (int i = 0; i < 3; i++) compile(stdout, i, 3);
    } else if (!strcmp(mode, "change")) {
        change();
    } else if (!strcmp(mode, "often")) { /* a miss is compiled, so one answer may take longer */
        static const int some[] = {0, 1, 6, 8};
        for (int i = 0; i < (int)(sizeof some / sizeof *some); i++) compile(stdout, some[i], OFTEN);
    } else if (!strcmp(mode, "closed")) {
        fflush(stdout);
        for (int descriptor = 3; descriptor < 256; descriptor++) close(descriptor);
        compile(stdout, 0, 1);
    } else if (!strcmp(mode, "callback")) {
        nvrtcProgram program;
        int (*follow)(nvrtcProgram, int (*)(void *, void *), void *) =
            (int (*)(nvrtcProgram, int (*)(void *, void *), void *))dlsym(library, "nvrtcSetFlowCallback");
        int cancel = 1;
        printf("create %d\n", nvrtcCreateProgram(&program, cases[0].source, cases[0].name, 0, NULL, NULL));
        printf("follow %d\n", follow(program, never, &cancel));
        printf("compile %d\n", nvrtcCompileProgram(program, 1, cases[0].options));
        nvrtcDestroyProgram(&program);
    } else if (!strcmp(mode, "functions")) {
        static const char *const names[] = {"nvrtcGetErrorString", "nvrtcGetPCHHeapSize", "nvrtcGetTileIRSize",
                                            "nvrtcGetNVVM", "__nvrtcCPEx", "nvrtcOfAnotherDay"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            printf("%s %d\n", names[i], dlsym(library, names[i]) != NULL);
    } else if (!strcmp(mode, "two")) {
        compile(stdout, 1, 1);
        if (given > 3) load(arguments[3]);
        printf("version %d", nvrtcVersion(&major, &minor));
        printf(" %d.%d\n", major, minor);
        compile(stdout, 1, 1);
    }
    return 0;
}
