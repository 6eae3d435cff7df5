// libcu++: atomics with an order and a scope, a barrier, arrays of several dimensions, tuples.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/limits>
#include <cuda/std/mdspan>
#include <cuda/std/span>
#include <cuda/std/tuple>

extern "C" __global__ void highest(const int *values, int *out) {
    cuda::atomic_ref<int, cuda::thread_scope_device> best(*out);
    int seen = best.load(cuda::memory_order_relaxed);
    int own = values[threadIdx.x] < cuda::std::numeric_limits<int>::max() ? values[threadIdx.x] : 0;
    while (seen < own && !best.compare_exchange_weak(seen, own, cuda::memory_order_acq_rel)) {
    }
}

extern "C" __global__ void meet(int *values) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    values[threadIdx.x] += 1;
    barrier.arrive_and_wait();
    values[threadIdx.x] *= values[(threadIdx.x + 1) % blockDim.x];
}

extern "C" __global__ void transpose(float *in, float *out) {
    cuda::std::mdspan<float, cuda::std::extents<int, 16, 16>> from(in);
    cuda::std::mdspan<float, cuda::std::extents<int, 16, 16>, cuda::std::layout_left> to(out);
    to(threadIdx.x, threadIdx.y) = from(threadIdx.x, threadIdx.y);
    cuda::std::span<float, 256> flat(out, 256);
    auto [first, last] = cuda::std::make_tuple(flat.front(), flat.back());
    if (first > last) flat[0] = last;
}
