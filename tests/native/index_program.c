/* Asks the rows of a layer, or of roots. A line of input is a mode, the path of a file with a question, and
   perhaps that of a layer or the roots, with tabs between them. The first byte of a question is its kind; its fields follow, each a length of four
   bytes and as many bytes. Says "none" or the fields of the answer in hexadecimal. Each line is asked in a process
   of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

static struct wire_bytes *fields; /* exactly as many as needed, so that reading beyond them is noticed */
static size_t count;
static enum wire_kind kind;

static void load(const char *path) {
    static unsigned char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0, at = 1;
    if (!size) exit(2);
    fclose(file);
    kind = bytes[0];
    while (at < size) {
        uint32_t length;
        memcpy(&length, bytes + at, 4);
        /* In separate memory, so that reading beyond it is noticed. */
        void *copy = length ? malloc(length) : NULL;
        if (length) memcpy(copy, bytes + at + 4, length);
        fields = realloc(fields, (count + 1) * sizeof *fields);
        fields[count++] = (struct wire_bytes){copy, length};
        at += 4 + length;
    }
}

static void say(int answered, struct wire_reply *reply) {
    struct wire_bytes field;
    while (answered && wire_next(reply, &field)) {
        for (size_t i = 0; i < field.size; i++) printf("%02x", ((const unsigned char *)field.at)[i]);
        putchar('.');
    }
    puts(answered ? "" : "none");
}

static void *ask_often(void *unused) {
    struct wire_reply reply;
    for (int i = 0; i < 50; i++)
        if (wire_ask(kind, fields, count, &reply)) wire_done(&reply);
    return unused;
}

int main(void) {
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            struct wire_reply reply;
            pthread_t threads[4];
            char *path = strtok(line + 2, "\t"), *index = strtok(NULL, "\t");
            if (index) setenv(getenv("GPUCACHE_RUN_SOCKET") ? "GPUCACHE_RUN_ROOTS" : "GPUCACHE_LAYER", index, 1);
            wire_begin();
            load(path);
            if (*line == 'c')
                for (int fd = 0; fd < 64; fd++)
                    if (fd != 1) close(fd);
            if (*line == 't') {
                for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_often, NULL);
                for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
            }
            if (*line == 'f' && fork()) { /* the child of the child asks */
                int status;
                wait(&status);
                _exit(status != 0);
            }
            int answered = wire_ask(kind, fields, count, &reply);
            say(answered, &reply);
            if (answered) wire_done(&reply);
            for (size_t i = 0; i < count; i++) free((void *)fields[i].at);
            free(fields);
            fflush(stdout);
            _exit(0);
        }
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        if (status) return 1;
    }
    return 0;
}
