// cuRANDDx: Philox in a thread.
#include <curanddx.hpp>

using RNG = decltype(curanddx::Generator<curanddx::philox4_32>() + curanddx::PhiloxRounds<10>() +
                     curanddx::SM<900>() + curanddx::Thread());

extern "C" __global__ void draw(unsigned long long seed, uint4 *out) {
    RNG rng(seed, threadIdx.x, 0);
    curanddx::uniform_bits bits;
    out[threadIdx.x] = bits.generate4(rng);
}
