// cuRAND on the device: three generators, two distributions.
#include <curand_kernel.h>

extern "C" __global__ void draw(unsigned long long seed, float *out) {
    curandStatePhilox4_32_10_t philox;
    curandStateMRG32k3a mrg;
    curandStateXORWOW xorwow;
    curand_init(seed, threadIdx.x, 0, &philox);
    curand_init(seed, threadIdx.x, 0, &mrg);
    curand_init(seed, threadIdx.x, 0, &xorwow);
    out[threadIdx.x] = curand_normal(&philox) + curand_uniform(&mrg) + curand_poisson(&xorwow, 3.0);
}
