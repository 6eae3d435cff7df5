// Applies one function to every element of an array: a template, so nothing is compiled until someone
// names an instance. The manifest names transform<float> and transform<double>; the entry keeps the
// lowered (mangled) name of each, which is what a launch needs.

template <typename T>
struct Smoothstep {
    T low, high;

    // 0 below `low`, 1 above `high`, a smooth step between them.
    __device__ T operator()(T x) const
    {
        T t = (x - low) / (high - low);
        t = t < T(0) ? T(0) : t > T(1) ? T(1) : t;
        return t * t * (T(3) - T(2) * t);
    }
};

template <typename T>
__global__ void transform(const T *in, T *out, T low, T high, unsigned n)
{
    const Smoothstep<T> function{low, high};
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = function(in[i]);
}
