/* Asks one question for each line of its input, each in a separate process, and prints the result.
   Usage: wire_program [FIELDS] */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

static void on_alarm(int number) { (void)number; }

/* Signals that come all the time, as a profiler sends them, must not disturb an exchange. */
static void alarm_every(int us) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, us}, {0, us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
}

static void say(struct wire_reply *reply) {
    struct wire_bytes field;
    printf("%x", reply->kind);
    while (wire_next(reply, &field)) {
        putchar(' ');
        for (size_t i = 0; i < field.size; i++) printf("%02x", ((const unsigned char *)field.at)[i]);
        putchar('.');
    }
    putchar('\n');
}

static void ask(size_t count) {
    struct wire_reply reply;
    struct wire_bytes *fields = calloc(count + 1, sizeof *fields);
    char *large = malloc(1 << 20);
    memset(large, 'x', 1 << 20);
    for (size_t i = 0; i < count; i++) fields[i] = (struct wire_bytes){large, i % 3 ? i : 0};
    if (count) fields[count - 1].size = 1 << 20;
    wire_begin();
    int answered = wire_ask(WIRE_BUILD, fields, count, &reply);
    alarm_every(0); /* printing would be disturbed */
    if (answered) say(&reply);
    if (answered) wire_done(&reply);
    if (!answered) puts("none");
    wire_tell(WIRE_OTHER, fields, 0, 0); /* heard by the server only where it was understood before */
    free(large);
    free(fields);
}

int main(int count, char **arguments) {
    char line[16];
    size_t fields = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
    while (fgets(line, sizeof line, stdin)) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            if (*line == 'a') alarm_every(1000);
            if (*line == 'c') close(0);
            ask(fields);
            fflush(stdout);
            _exit(0);
        }
        int status;
        while (waitpid(child, &status, 0) < 0) {}
        if (status) return 1;
    }
    return 0;
}
