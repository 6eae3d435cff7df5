/* Calls hipRTC as rocFFT does: kernels by name, each compiled by a helper process, or in this one if that fails.

     rtc_program ARCH FIRST COUNT HELPER    compiles kernels, prints name, size and sum of each and all seconds
     rtc_program helper ARCH                compiles its input and writes the code object or the error to its output
*/
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void *program;
int hiprtcCreateProgram(program *, const char *, const char *, int, const char **, const char **);
int hiprtcCompileProgram(program, int, const char **);
int hiprtcDestroyProgram(program *);
int hiprtcGetProgramLogSize(program, size_t *);
int hiprtcGetProgramLog(program, char *);
int hiprtcGetCodeSize(program, size_t *);
int hiprtcGetCode(program, char *);

struct bytes {
    char *at;
    size_t size;
};

/* Code object, or a log with 0. */
static int compile(const char *source, const char *arch, struct bytes *out) {
    char option[64];
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    const char *options[] = {"-O3", "-std=c++14", option, "-mcumode"};
    program one;
    if (hiprtcCreateProgram(&one, source, "rocfft_rtc.hip", 0, NULL, NULL)) exit(3);
    int failed = hiprtcCompileProgram(one, 4, options);
    (failed ? hiprtcGetProgramLogSize : hiprtcGetCodeSize)(one, &out->size);
    out->at = calloc(1, out->size + 1);
    (failed ? hiprtcGetProgramLog : hiprtcGetCode)(one, out->at);
    hiprtcDestroyProgram(&one);
    return !failed;
}

static struct bytes read_all(FILE *from) {
    struct bytes all = {malloc(1 << 22), 0};
    all.size = fread(all.at, 1, (1 << 22) - 1, from);
    all.at[all.size] = 0;
    return all;
}

static int help(const char *helper, const char *source, const char *arch, struct bytes *out) {
    int in[2], back[2], status;
    if (pipe(in) || pipe(back)) return 0;
    pid_t child = fork();
    if (!child) {
        dup2(in[0], 0), dup2(back[1], 1);
        close(in[0]), close(in[1]), close(back[0]), close(back[1]);
        execl(helper, helper, "helper", arch, (char *)NULL);
        _exit(127);
    }
    close(in[0]), close(back[1]);
    FILE *to = fdopen(in[1], "w"), *from = fdopen(back[0], "r");
    fputs(source, to);
    fclose(to);
    *out = read_all(from);
    fclose(from);
    return waitpid(child, &status, 0) == child && !status;
}

/* A Stockham kernel of some length with unrolled butterflies; the name says all that it depends on. */
static char *generate(int number, char *name) {
    int radix = 8 << number % 3, passes = 3 + number % 4;
    sprintf(name, "fft_rtc_fwd_len%d_factors_%d_passes_%d_wgs_64_tpt_8_sp_ip_CI_sbrr_v%d", radix << passes, radix, passes,
            number);
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "#define ROCFFT_CALLBACKS_ENABLED\nstruct complex { float x, y; };\n"
                "extern \"C\" __global__ void %s(complex *data, const complex *twiddles, unsigned count) {\n"
                "__shared__ complex lds[%d * 64];\ncomplex R[%d], T; unsigned t = threadIdx.x, b = blockIdx.x;\n"
                "for (int i = 0; i < %d; i++) R[i] = data[b * %d + t + 64 * i];\n",
            name, radix, radix, radix, radix * 64);
    for (int pass = 0; pass < passes; pass++) {
        for (int half = 1; half < radix; half *= 2)
            for (int i = 0; i < radix; i++)
                if (!(i & half))
                    fprintf(to, "T.x = R[%d].x * twiddles[%d + t %% %d].x - R[%d].y * twiddles[%d + t %% %d].y;"
                                "T.y = R[%d].x * twiddles[%d + t %% %d].y + R[%d].y * twiddles[%d + t %% %d].x;"
                                "R[%d].x = R[%d].x - T.x; R[%d].y = R[%d].y - T.y; R[%d].x += T.x; R[%d].y += T.y;\n",
                            i + half, i, pass + 2, i + half, i, pass + 2, i + half, i, pass + 2, i + half, i, pass + 2,
                            i + half, i, i + half, i, i, i);
        fprintf(to, "for (int i = 0; i < %d; i++) lds[(t * %d + i) %% (64 * %d)] = R[i];\n__syncthreads();\n"
                    "for (int i = 0; i < %d; i++) R[i] = lds[t + 64 * i];\n__syncthreads();\n",
                radix, radix, radix, radix);
    }
    fprintf(to, "for (int i = 0; i < %d; i++) if (t < count) data[b * %d + t + 64 * i] = R[i];\n}\n", radix, radix * 64);
    fclose(to);
    return text;
}

int main(int count, char **words) {
    struct bytes code;
    if (count == 3) {
        int made = compile(read_all(stdin).at, words[2], &code);
        fwrite(code.at, 1, code.size, stdout);
        return !made;
    }
    struct timespec begin, end;
    signal(SIGPIPE, SIG_IGN); /* of a helper that is gone before it is written to */
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = atoi(words[2]); i < atoi(words[2]) + atoi(words[3]); i++) {
        char name[256], *source = generate(i, name);
        const char *how = "helped";
        if (!help(words[4], source, words[1], &code)) how = compile(source, words[1], &code) ? "in process" : "failed";
        uint64_t sum = 14695981039346656037u;
        for (size_t j = 0; j < code.size; j++) sum = (sum ^ (unsigned char)code.at[j]) * 1099511628211u;
        printf("%s %zu %016llx\n", name, code.size, (unsigned long long)sum);
        fprintf(stderr, "%s\n", how);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    fprintf(stderr, "%.3f s\n", (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec));
    return 0;
}
