// Sum and maximum of a large array in two launches: first every work-group reduces its share to one
// partial result, then one work-group reduces those. `scratch` is one float for each work item.
//
// The header is part of what is cached: change a line in it, and the next build is a miss that names
// it.

#include "workgroup.h"

#define ADD(A, B) ((A) + (B))

DEFINE_WORK_GROUP_REDUCTION(group_sum, float, ADD)
DEFINE_WORK_GROUP_REDUCTION(group_maximum, float, fmax)

kernel void reduce_sum(
    global const float *values, global float *partials, local float *scratch, const uint n)
{
    float own = 0.0f;
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0))
        own += values[i];
    const float sum = group_sum(own, scratch);
    if (get_local_id(0) == 0)
        partials[get_group_id(0)] = sum;
}

kernel void reduce_maximum(
    global const float *values, global float *partials, local float *scratch, const uint n)
{
    float own = -INFINITY;
    for (size_t i = get_global_id(0); i < n; i += get_global_size(0))
        own = fmax(own, values[i]);
    const float maximum = group_maximum(own, scratch);
    if (get_local_id(0) == 0)
        partials[get_group_id(0)] = maximum;
}
