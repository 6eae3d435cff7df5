// CUTLASS: CuTe's tensors and copies.
#include <cute/tensor.hpp>

using namespace cute;

extern "C" __global__ void tiles(const float *in, float *out) {
    auto from = make_tensor(make_gmem_ptr(in), make_layout(make_shape(Int<16>{}, Int<16>{})));
    auto to = make_tensor(make_gmem_ptr(out), make_layout(make_shape(Int<16>{}, Int<16>{}), LayoutRight{}));
    auto threads = make_layout(make_shape(Int<8>{}, Int<4>{}));
    copy(local_partition(from, threads, threadIdx.x), local_partition(to, threads, threadIdx.x));
}
