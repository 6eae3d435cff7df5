// Numbers of 16, 8, 6 and 4 bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

extern "C" __global__ void halves(__half2 a, const __half2 *x, __half2 *y) {
    y[threadIdx.x] = __hfma2(a, x[threadIdx.x], h2exp(y[threadIdx.x]));
}

extern "C" __global__ void brains(__nv_bfloat162 a, const __nv_bfloat162 *x, __nv_bfloat162 *y) {
    y[threadIdx.x] = __hfma2(a, x[threadIdx.x], h2sqrt(y[threadIdx.x]));
}

extern "C" __global__ void narrow(const float *in, __nv_fp8_e4m3 *eight, __nv_fp6_e3m2 *six, __nv_fp4_e2m1 *four) {
    float value = in[threadIdx.x];
    eight[threadIdx.x] = __nv_fp8_e4m3(value);
    six[threadIdx.x] = __nv_fp6_e3m2(value);
    four[threadIdx.x] = __nv_fp4_e2m1(float(eight[threadIdx.x]));
}
