// CUDA runtime: complex numbers, constants, asynchronous copies into shared memory.
#include <cuComplex.h>
#include <cuda_pipeline.h>
#include <math_constants.h>

extern "C" __global__ void rotate(cuFloatComplex *points, float turns) {
    float angle = 2 * CUDART_PI_F * turns;
    cuFloatComplex by = make_cuFloatComplex(cosf(angle), sinf(angle));
    points[threadIdx.x] = cuCmulf(points[threadIdx.x], by);
}

extern "C" __global__ void staged(const float4 *in, float4 *out) {
    __shared__ float4 stage[128];
    __pipeline_memcpy_async(&stage[threadIdx.x], &in[threadIdx.x], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[threadIdx.x] = stage[127 - threadIdx.x];
}
