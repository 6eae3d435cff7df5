/* How long a compile takes, without the time for which its thread waits for other compiles of the process.

   Drivers let one thread compile at a time. Where compiles overlap, the CPU time of the thread itself counts;
   a driver that compiles in its own threads leaves no such time, and there each of the compiles has an equal
   share of the wait. To be included once in a library. */
#ifndef GPUCACHE_STOPWATCH_H
#define GPUCACHE_STOPWATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define LEAST_COMPILE_NS 5000000 /* no compile takes less CPU time; passing one to another thread does */

struct stopwatch {
    uint64_t began, used; /* by the clock, and by the thread, in ns */
    unsigned before, others;
    pthread_t thread;
};

static atomic_uint compiles_begun, compiles_ended;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now)) return 0;
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct stopwatch begin_compile(void) {
    unsigned ended = atomic_load(&compiles_ended), before = atomic_fetch_add(&compiles_begun, 1);
    return (struct stopwatch){clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID), before, before - ended,
                              pthread_self()};
}

/* To be called once for each begin_compile(), by any thread. */
static uint64_t end_compile(const struct stopwatch *compile) {
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - compile->began, used = 0;
    unsigned others = compile->others + atomic_load(&compiles_begun) - compile->before - 1;
    atomic_fetch_add(&compiles_ended, 1);
    if (!others) return took;
    if (pthread_equal(pthread_self(), compile->thread)) used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - compile->used;
    return used < LEAST_COMPILE_NS ? took / (others + 1) : used < took ? used : took;
}

#endif
