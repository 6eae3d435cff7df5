// Monte-Carlo prices of options whose payoff depends on the whole path of a stock: what a trading desk
// runs all night. Every contract, with every number of fixings, is an instance with its path unrolled, as
// such libraries do for speed; together they keep a compiler busy for seconds.
//
// Random numbers come from a counter (Philox 4x32-10), so path i is the same in whichever thread and on
// whichever GPU it is computed. Each path has a mirrored one, which takes out much of the noise.

#include "philox.cuh"

// What a contract needs to know of a path, and what it pays at the end.
struct Call {
    __device__ void fix(float) {}
    __device__ float pay(float last, float strike, float, int) const { return fmaxf(last - strike, 0.0f); }
};

struct Asian { // on the mean of all fixings
    float sum = 0.0f;
    __device__ void fix(float price) { sum += price; }
    __device__ float pay(float, float strike, float, int fixings) const
    {
        return fmaxf(sum / fixings - strike, 0.0f);
    }
};

struct Geometric { // on their geometric mean, for which there is a formula to check against
    float sum = 0.0f;
    __device__ void fix(float price) { sum += logf(price); }
    __device__ float pay(float, float strike, float, int fixings) const
    {
        return fmaxf(expf(sum / fixings) - strike, 0.0f);
    }
};

struct UpAndOut { // a call that is void once a fixing reaches the barrier
    float highest = 0.0f;
    __device__ void fix(float price) { highest = fmaxf(highest, price); }
    __device__ float pay(float last, float strike, float barrier, int) const
    {
        return highest < barrier ? fmaxf(last - strike, 0.0f) : 0.0f;
    }
};

struct Lookback { // sells at the end for what it cost at the lowest fixing
    float lowest = 3.4e38f; // above any price
    __device__ void fix(float price) { lowest = fminf(lowest, price); }
    __device__ float pay(float last, float, float, int) const { return last - lowest; }
};

// Thread i writes the sum of its payoffs, discounted, and of their squares to sums[i] and squares[i]: added
// up and divided by `paths` they give the price and its error.
template <typename Contract, int FIXINGS>
__global__ void price(
    float spot, float strike, float barrier, float rate, float volatility, float years, unsigned seed,
    unsigned paths, double *sums, double *squares)
{
    const unsigned threads = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    const float step = years / FIXINGS;
    const float drift = (rate - 0.5f * volatility * volatility) * step;
    const float spread = volatility * sqrtf(step);
    const float discount = expf(-rate * years);
    double sum = 0.0, square = 0.0;

    for (unsigned path = thread; path < paths; path += threads) {
        Contract contract, mirrored;
        float log_price = logf(spot), log_mirrored = log_price;
#pragma unroll
        for (int first = 0; first < FIXINGS; first += 4) {
            const Normals normals = philox_normals(path, first / 4, seed);
#pragma unroll
            for (int i = 0; i < 4 && first + i < FIXINGS; ++i) {
                log_price += drift + spread * normals.values[i];
                log_mirrored += drift - spread * normals.values[i];
                contract.fix(expf(log_price));
                mirrored.fix(expf(log_mirrored));
            }
        }
        const float payoff = contract.pay(expf(log_price), strike, barrier, FIXINGS);
        const float other = mirrored.pay(expf(log_mirrored), strike, barrier, FIXINGS);
        const double mean = 0.5 * discount * (double(payoff) + other);
        sum += mean;
        square += mean * mean;
    }
    sums[thread] = sum;
    squares[thread] = square;
}
