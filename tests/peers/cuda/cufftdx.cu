// cuFFTDx: a transform by each thread.
#include <cufftdx.hpp>

using namespace cufftdx;
using FFT = decltype(Thread() + Size<8>() + Type<fft_type::c2c>() + Direction<fft_direction::forward>() +
                     Precision<float>() + SM<900>());

extern "C" __global__ void transform(FFT::value_type *data) {
    FFT::value_type own[FFT::storage_size];
    for (int i = 0; i < FFT::elements_per_thread; i++) own[i] = data[threadIdx.x * 8 + i];
    FFT().execute(own);
    for (int i = 0; i < FFT::elements_per_thread; i++) data[threadIdx.x * 8 + i] = own[i];
}
