#include <gpucache/check.h>

int doubled(GPUCACHE_CHECKED int value, int bound, int *result)
{
    GPUCACHE_CHECK_INSIDE(value < bound, "%d cannot be doubled below %d", value, bound);
    *result = value * 2;
    return 0;
}

int nested(GPUCACHE_CHECKED int value, int bound, int *result)
{
    GPUCACHE_CALL_INSIDE(doubled(GPUCACHE_PASS value, bound, result));
    return 0;
}

kernel void gather(GPUCACHE_CHECKED global const int *where, global int *out, int n)
{
    GPUCACHE_BEGIN;
    int i = where[get_global_id(0)];
    GPUCACHE_CHECK(i >= 0 && i < n, "index %d is outside of 0 to %d", i, n - 1);
    out[get_global_id(0)] = i + 1;
}

kernel void calls(GPUCACHE_CHECKED global int *out, int bound)
{
    GPUCACHE_BEGIN;
    int result;
    GPUCACHE_CALL(nested(GPUCACHE_PASS (int)get_global_id(0), bound, &result));
    out[get_global_id(0)] = result;
}

kernel void types(GPUCACHE_CHECKED global float *out)
{
    GPUCACHE_BEGIN;
    uchar small = 250;
    char below = -3;
    ulong large = 18446744073709551615UL;
    long negative = -5000000000L;
    GPUCACHE_CHECK(get_global_id(0) != 5, "%d %d %u %d %d %g %g %.3f", small, below, large, negative, 7u, 0.1f,
        1e30, out[0]);
}

kernel void many(GPUCACHE_CHECKED global int *out)
{
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK(out[0] == 0, "never"); GPUCACHE_CHECK(out[1] == 0, "the second of a line");
}

kernel void bare(GPUCACHE_CHECKED global int *out)
{
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK(out[0] == 0);
}

#define AT(i, n) GPUCACHE_CHECK(i < n, "never read", i, n)

kernel void macro(GPUCACHE_CHECKED global int *out)
{
    GPUCACHE_BEGIN;
    AT(out[0], 1);
}

kernel void sum(GPUCACHE_CHECKED global const int *x, global int *out, local int *shared, int item, int half_size)
{
    GPUCACHE_BEGIN_SYNC;
    int id = get_local_id(0);
    shared[id] = x[get_global_id(0)];
    GPUCACHE_CHECK_SYNC(loaded, shared[id] >= 0, "item %d holds %d", (int)get_global_id(0), shared[id]);
    GPUCACHE_SYNC(loaded);
    for (int size = get_local_size(0) / 2; size > 0; size /= 2) {
        int result = 0;
        if (size == half_size)
            GPUCACHE_CALL_SYNC(halved, doubled(GPUCACHE_PASS (int)get_global_id(0), item, &result));
        if (id < size)
            shared[id] += shared[id + size];
        GPUCACHE_SYNC(halved);
    }
    if (id == 0)
        GPUCACHE_CHECK_SYNC(end, shared[0] < 1000, "the sum %d is too large", shared[0]);
    if (id == 0)
        out[get_group_id(0)] = shared[0];
    GPUCACHE_END_SYNC(end);
}

kernel void last(GPUCACHE_CHECKED global int *out, int item, int other)
{
    GPUCACHE_BEGIN_SYNC;
    GPUCACHE_SYNC(begun);
    GPUCACHE_CHECK_SYNC(end, get_local_id(0) != item, "item %d fails", item);
    if (get_local_id(0) == other) {
        if (out[get_global_id(0)] == 0)
            out[get_global_id(0)] = 2;
    } else
        out[get_global_id(0)] = 1;
    GPUCACHE_END_SYNC(end);
}

kernel void plain(global int *out)
{
    out[get_global_id(0)] = 7;
}

kernel void unchecked(GPUCACHE_CHECKED global int *out)
{
    GPUCACHE_BEGIN;
    out[get_global_id(0)] = 3;
}
