// Cooperative groups, whose headers include what lies beside them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

extern "C" __global__ void groups(int *values) {
    __shared__ int stage[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, stage, values, sizeof(stage));
    cg::wait(block);
    auto tile = cg::tiled_partition<32>(block);
    int sum = cg::reduce(tile, stage[block.thread_rank()], cg::plus<int>());
    values[block.thread_rank()] = cg::exclusive_scan(tile, sum);
}
