/* Compiles the source in a file by hipRTC with the options that follow, and prints all that hipRTC gives. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>

typedef void *program;
int hiprtcCreateProgram(program *, const char *, const char *, int, const char **, const char **);
int hiprtcAddNameExpression(program, const char *);
int hiprtcCompileProgram(program, int, const char **);
int hiprtcGetLoweredName(program, const char *, const char **);
int hiprtcDestroyProgram(program *);
int hiprtcGetProgramLogSize(program, size_t *);
int hiprtcGetProgramLog(program, char *);
int hiprtcGetCodeSize(program, size_t *);
int hiprtcGetCode(program, char *);

int main(int count, char **words) {
    char *source = calloc(1, 1 << 20), *log, *code;
    const char *lowered = "", *texts[] = {"#define MEMORY 5\n"}, *names[] = {"memory.h"};
    size_t size;
    program one;
    FILE *file = fopen(words[1], "r");
    if (!file || !fread(source, 1, (1 << 20) - 1, file)) return 2;
    printf("created %d\n", hiprtcCreateProgram(&one, source, "shown.hip", !!strstr(source, "memory.h"), texts, names));
    printf("named %d\n", hiprtcAddNameExpression(one, "show<int>"));
    int failed = hiprtcCompileProgram(one, count - 2, (const char **)words + 2);
    hiprtcGetProgramLogSize(one, &size);
    log = calloc(1, size + 1);
    hiprtcGetProgramLog(one, log);
    printf("compiled %d %s\n", failed, log);
    if (failed) return 1;
    hiprtcGetCodeSize(one, &size);
    code = malloc(size);
    hiprtcGetCode(one, code);
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) sum = (sum ^ (unsigned char)code[i]) * 1099511628211u;
    printf("code %zu %016llx\n", size, (unsigned long long)sum);
    failed = hiprtcGetLoweredName(one, "show<int>", &lowered);
    printf("lowered %d %s\n", failed, lowered);
    printf("again %d\n", hiprtcAddNameExpression(one, "show<float>") != 0);
    printf("destroyed %d\n", hiprtcDestroyProgram(&one));
    return 0;
}
