// Equalizes the histogram of an 8-bit image in three launches: count the pixels of each level, scan the
// counts into the level that each becomes, and replace the pixels. `counts` starts as zeros; `scratch` is
// one uint for each work item; `assign_levels` is for one work-group.

#include "workgroup.h"

#define LEVELS 256

#define ADD(A, B) ((A) + (B))

DEFINE_WORK_GROUP_SCAN(group_scan, uint, ADD)

kernel void count_levels(global const uchar *pixels, global uint *counts, const uint n)
{
    local uint own[LEVELS]; // one histogram for the group keeps most of the counting out of global memory
    for (size_t level = get_local_id(0); level < LEVELS; level += get_local_size(0))
        own[level] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0))
        atomic_inc(&own[pixels[i]]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (size_t level = get_local_id(0); level < LEVELS; level += get_local_size(0))
        atomic_add(&counts[level], own[level]);
}

kernel void assign_levels(
    global const uint *counts, global uchar *levels, local uint *scratch, const uint n)
{
    uint before = 0; // pixels of the levels that are already assigned
    for (size_t first = 0; first < LEVELS; first += get_local_size(0)) {
        const size_t level = first + get_local_id(0);
        const uint up_to = before + group_scan(level < LEVELS ? counts[level] : 0, scratch);
        if (level < LEVELS)
            levels[level] = (uchar)((ulong)up_to * (LEVELS - 1) / max(n, 1u));
        before += scratch[get_local_size(0) - 1];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

kernel void replace_levels(global uchar *pixels, global const uchar *levels, const uint n)
{
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0))
        pixels[i] = levels[pixels[i]];
}
