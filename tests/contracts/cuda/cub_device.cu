// CUB: the kernel of one of its algorithms over a whole device, and the algorithm itself.
#include <cub/agent/agent_for.cuh>
#include <cub/device/dispatch/kernels/kernel_reduce.cuh>
#include <cub/grid/grid_even_share.cuh>

extern "C" __global__ void load(int *values, int *out) {
    cub::GridEvenShare<int> share;
    share.DispatchInit(1 << 20, 8, 1024);
    share.BlockInit<128, cub::GRID_MAPPING_RAKE>();
    out[threadIdx.x] = values[share.block_offset] + share.block_end;
}
