// CUB: scans, sorts and reductions by a block and by a warp, and parts of what works on a whole device.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/dispatch/kernels/kernel_reduce.cuh>
#include <cub/grid/grid_even_share.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>

extern "C" __global__ void sorted_sums(unsigned *values) {
    using Sort = cub::BlockRadixSort<unsigned, 128, 2>;
    using Scan = cub::BlockScan<unsigned, 128>;
    __shared__ union {
        Sort::TempStorage sort;
        Scan::TempStorage scan;
    } storage;
    unsigned own[2] = {values[2 * threadIdx.x], values[2 * threadIdx.x + 1]};
    Sort(storage.sort).Sort(own);
    __syncthreads();
    Scan(storage.scan).InclusiveSum(own, own);
    values[2 * threadIdx.x] = own[0];
    values[2 * threadIdx.x + 1] = own[1];
}

struct Less {
    __device__ bool operator()(int a, int b) const { return a < b; }
};

extern "C" __global__ void warps(int *values) {
    using Reduce = cub::WarpReduce<int>;
    using Sort = cub::WarpMergeSort<int, 1, 32>;
    __shared__ Reduce::TempStorage reduce;
    __shared__ Sort::TempStorage sort;
    int own[1] = {values[threadIdx.x]};
    Sort(sort).Sort(own, Less());
    int sum = Reduce(reduce).Sum(own[0]);
    values[threadIdx.x] = threadIdx.x == 0 ? sum : own[0];
}

extern "C" __global__ void shared_evenly(int *values, int *out) {
    cub::GridEvenShare<int> share;
    share.DispatchInit(1 << 20, 8, 1024);
    share.BlockInit<128, cub::GRID_MAPPING_RAKE>();
    out[threadIdx.x] = values[share.block_offset] + share.block_end;
}
