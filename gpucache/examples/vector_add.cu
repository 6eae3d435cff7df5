// c = a + b: the smallest useful CUDA program. The kernel is extern "C", so it is launched by the name
// it has here. The manifest also builds it as PTX, which the driver of any newer GPU can finish.

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        c[i] = a[i] + b[i];
}
