/* What bench --checks times: kernels of the kinds whose checks cost most, each with the checks that a
 * careful author writes. All have the same arguments: indices, numbers, what comes out, and how many. */
#include <gpucache/check.h>

#define GROUP 128
#define WIDTH 256

/* Indices from data, read through: nothing can prove them to be in range. */
kernel void gather(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN;
    int i = get_global_id(0);
    int from = where[i];
    GPUCACHE_CHECK(from >= 0 && from < n, "index %d is outside of 0 to %d", from, n - 1);
    out[i] = in[from];
}

/* Indices from data, written through. */
kernel void scatter(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN;
    int i = get_global_id(0);
    int to = where[i];
    GPUCACHE_CHECK(to >= 0 && to < n, "index %d is outside of 0 to %d", to, n - 1);
    out[to] = in[i];
}

/* Several indices for each item, near to one another. */
int load(GPUCACHE_CHECKED global const float *in, int at, int n, float *value)
{
    GPUCACHE_CHECK_INSIDE(at >= 0 && at < n, "index %d is outside of 0 to %d", at, n - 1);
    *value = in[at];
    return 0;
}

kernel void stencil(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN;
    int i = get_global_id(0);
    float up, down, left, right;
    GPUCACHE_CALL(load(GPUCACHE_PASS in, (i + n - WIDTH) % n, n, &up));
    GPUCACHE_CALL(load(GPUCACHE_PASS in, (i + WIDTH) % n, n, &down));
    GPUCACHE_CALL(load(GPUCACHE_PASS in, (i + n - 1) % n, n, &left));
    GPUCACHE_CALL(load(GPUCACHE_PASS in, (i + 1) % n, n, &right));
    out[i] = 0.25f * (up + down + left + right);
}

/* Barriers: a tree of sums. */
kernel void reduce(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN_SYNC;
    local float shared[GROUP];
    int id = get_local_id(0);
    int from = where[get_global_id(0)];
    GPUCACHE_CHECK_SYNC(loaded, from >= 0 && from < n, "index %d is outside of 0 to %d", from, n - 1);
    shared[id] = in[from];
    GPUCACHE_SYNC(loaded);
    for (int size = GROUP / 2; size > 0; size /= 2) {
        if (id < size) {
            GPUCACHE_CHECK_SYNC(halved, id + size < GROUP, "item %d is outside of 0 to %d", id + size, GROUP - 1);
            shared[id] += shared[id + size];
        }
        GPUCACHE_SYNC(halved);
    }
    if (id == 0)
        out[get_group_id(0)] = shared[0];
    GPUCACHE_END_SYNC(end);
}

/* Barriers: two for each step of a running sum. */
kernel void scan(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN_SYNC;
    local float shared[GROUP];
    int id = get_local_id(0);
    int from = where[get_global_id(0)];
    GPUCACHE_CHECK_SYNC(loaded, from >= 0 && from < n, "index %d is outside of 0 to %d", from, n - 1);
    shared[id] = in[from];
    GPUCACHE_SYNC(loaded);
    for (int step = 1; step < GROUP; step *= 2) {
        float before = 0;
        if (id >= step) {
            GPUCACHE_CHECK_SYNC(fetched, id - step < GROUP, "item %d is outside of 0 to %d", id - step, GROUP - 1);
            before = shared[id - step];
        }
        GPUCACHE_SYNC(fetched);
        shared[id] += before;
        GPUCACHE_SYNC(added);
    }
    out[get_global_id(0)] = shared[id];
    GPUCACHE_END_SYNC(end);
}

/* Little work for each launch, between which the host reads a number. */
kernel void steps(GPUCACHE_CHECKED global const int *where, global const float *in, global float *out, int n)
{
    GPUCACHE_BEGIN;
    int i = get_global_id(0);
    int from = where[i];
    GPUCACHE_CHECK(from >= 0 && from < n, "index %d is outside of 0 to %d", from, n - 1);
    out[i] = in[from] + 1;
}
