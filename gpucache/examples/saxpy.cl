// y = a * x + y, the inner loop of many solvers. Each work item handles BLOCK elements, a launch apart
// so that neighbours read neighbours; T is the type of the elements. Every T is a variant: a build of
// its own, with an entry of its own in the cache.

#ifndef T
#define T float
#endif
#ifndef BLOCK
#define BLOCK 4
#endif

kernel void saxpy(const T a, global const T *x, global T *y, const uint n)
{
    for (uint b = 0; b < BLOCK; ++b) {
        const size_t i = get_global_id(0) + b * get_global_size(0);
        if (i < n)
            y[i] = a * x[i] + y[i];
    }
}
