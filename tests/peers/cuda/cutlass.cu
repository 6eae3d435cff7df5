// CUTLASS: numeric types, arrays, a functor.
#include <cutlass/array.h>
#include <cutlass/functional.h>
#include <cutlass/numeric_conversion.h>

extern "C" __global__ void add(const cutlass::Array<cutlass::half_t, 8> *in, cutlass::Array<float, 8> *out) {
    cutlass::NumericArrayConverter<float, cutlass::half_t, 8> widen;
    cutlass::plus<cutlass::Array<float, 8>> plus;
    out[threadIdx.x] = plus(out[threadIdx.x], widen(in[threadIdx.x]));
}
