/* Two threads compile at a time, one of which waits for the other's lock: prints 1 if the wait is not counted. */
#define _GNU_SOURCE
#include <stdio.h>

#include "stopwatch.h"

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER, meeting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
static int held, waiting;

static void signal_that(int *fact) {
    pthread_mutex_lock(&meeting);
    *fact = 1;
    pthread_cond_broadcast(&met);
    pthread_mutex_unlock(&meeting);
}

static void wait_until(const int *fact) {
    pthread_mutex_lock(&meeting);
    while (!*fact) pthread_cond_wait(&met, &meeting);
    pthread_mutex_unlock(&meeting);
}

static void compile(uint64_t ns) {
    uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end) continue;
}

static void *first(void *unused) {
    pthread_mutex_lock(&driver);
    signal_that(&held);
    wait_until(&waiting);
    compile(60000000);
    pthread_mutex_unlock(&driver);
    return unused;
}

int main(void) {
    pthread_t thread;
    struct stopwatch alone = begin_compile();
    uint64_t before = clock_ns(CLOCK_MONOTONIC);
    compile(20000000);
    int whole = end_compile(&alone) >= 20000000;

    struct stopwatch other = begin_compile();
    if (pthread_create(&thread, NULL, first, NULL)) return 1;
    wait_until(&held);
    struct stopwatch waits = begin_compile();
    before = clock_ns(CLOCK_MONOTONIC);
    signal_that(&waiting);
    pthread_mutex_lock(&driver); /* for as long as the first compiles at least */
    compile(20000000);
    uint64_t took = end_compile(&waits), wall = clock_ns(CLOCK_MONOTONIC) - before;
    pthread_mutex_unlock(&driver);
    pthread_join(thread, NULL);
    uint64_t shared = end_compile(&other); /* begun by a thread that compiled nothing: an equal share */
    printf("%d %d %d\n", whole, took >= 20000000 && took <= wall - 60000000, shared > 0);
    return 0;
}
