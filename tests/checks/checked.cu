#include <gpucache/check.h>

__device__ int doubled(GPUCACHE_CHECKED int value, int bound, int *result)
{
    GPUCACHE_CHECK_INSIDE(value < bound, "%d cannot be doubled below %d", value, bound);
    *result = value * 2;
    return 0;
}

extern "C" __global__ void gather(GPUCACHE_CHECKED const int *where, int *out, int n)
{
    GPUCACHE_BEGIN;
    int i = where[blockIdx.x * blockDim.x + threadIdx.x];
    GPUCACHE_CHECK(i >= 0 && i < n, "index %d is outside of 0 to %d", i, n - 1);
    int result;
    GPUCACHE_CALL(doubled(GPUCACHE_PASS i, n, &result));
    out[blockIdx.x * blockDim.x + threadIdx.x] = i + 1;
}

extern "C" __global__ void types(GPUCACHE_CHECKED int *out)
{
    GPUCACHE_BEGIN;
    unsigned char small = 250;
    signed char below = -3;
    unsigned long long large = 18446744073709551615ULL;
    long long negative = -5000000000LL;
    GPUCACHE_CHECK(threadIdx.x != 5, "%d %d %u %d %d %g %g %d", small, below, large, negative, true, 0.1f, 1e30,
        threadIdx.x);
    out[threadIdx.x] = small + below + (int)large + (int)negative;
}

template <typename T> __global__ void sum(GPUCACHE_CHECKED const T *x, T *out, int bound)
{
    GPUCACHE_BEGIN_SYNC;
    __shared__ T shared[64];
    int id = threadIdx.x;
    {
        T value = x[blockIdx.x * blockDim.x + id];
        GPUCACHE_CHECK_SYNC(loaded, value >= 0, "item %d holds %g", id, value);
        T kept = value;
        shared[id] = kept;
    }
    GPUCACHE_SYNC(loaded);
    for (int size = blockDim.x / 2; size > 0; size /= 2) {
        int result = 0;
        if (id < size) {
            GPUCACHE_CALL_SYNC(halved, doubled(GPUCACHE_PASS id, bound, &result));
            shared[id] += shared[id + size];
        }
        GPUCACHE_SYNC(halved);
    }
    GPUCACHE_CHECK_SYNC(end, shared[id] < 1000, "the sum %g is too large", shared[id]);
    if (id == 0)
        out[blockIdx.x] = shared[0];
    GPUCACHE_END_SYNC(end);
}
