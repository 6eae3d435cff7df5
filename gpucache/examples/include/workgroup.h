// Reductions and scans over a work-group of any one-dimensional size: OpenCL C before 2.0 has none of its own.

#ifndef WORKGROUP_H
#define WORKGROUP_H

// Defines `T NAME(T value, local T *scratch)`, which combines the values of all work items and gives
// each of them the result. `scratch` holds one T for each work item. Every work item must call it.
#define DEFINE_WORK_GROUP_REDUCTION(NAME, T, COMBINE)                         \
    static T NAME(T value, local T *scratch)                                  \
    {                                                                         \
        const size_t item = get_local_id(0);                                  \
        scratch[item] = value;                                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                         \
        for (size_t left = get_local_size(0); left > 1;) {                    \
            const size_t kept = (left + 1) / 2;                               \
            if (item + kept < left)                                           \
                scratch[item] = COMBINE(scratch[item], scratch[item + kept]); \
            barrier(CLK_LOCAL_MEM_FENCE);                                     \
            left = kept;                                                      \
        }                                                                     \
        return scratch[0];                                                    \
    }

// Defines `T NAME(T value, local T *scratch)`, which gives each work item its value combined with those of
// all items before it. `scratch` holds one T for each work item, and then the results of all of them. Every
// work item must call it.
#define DEFINE_WORK_GROUP_SCAN(NAME, T, COMBINE)                        \
    static T NAME(T value, local T *scratch)                            \
    {                                                                   \
        const size_t item = get_local_id(0);                            \
        scratch[item] = value;                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                   \
        for (size_t reach = 1; reach < get_local_size(0); reach *= 2) { \
            if (item >= reach)                                          \
                value = COMBINE(scratch[item - reach], value);          \
            barrier(CLK_LOCAL_MEM_FENCE);                               \
            scratch[item] = value;                                      \
            barrier(CLK_LOCAL_MEM_FENCE);                               \
        }                                                               \
        return value;                                                   \
    }

#endif
