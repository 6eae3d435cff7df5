// C = A B for row-major matrices of any size, tile by tile through shared memory. A block of TILE x TILE
// threads computes a square of C, PER_THREAD rows of tiles high; which pair is fastest depends on the GPU,
// so a program ships several instances and picks one when it starts. Grid: columns / TILE by
// rows / (TILE * PER_THREAD), both rounded up.

template <typename T, int TILE, int PER_THREAD>
__global__ void matmul(const T *a, const T *b, T *c, unsigned rows, unsigned inner, unsigned columns)
{
    __shared__ T tile_a[TILE * PER_THREAD][TILE + 1]; // one column of padding keeps banks apart
    __shared__ T tile_b[TILE][TILE + 1];
    const unsigned x = threadIdx.x, y = threadIdx.y;
    const unsigned column = blockIdx.x * TILE + x;
    const unsigned first_row = blockIdx.y * TILE * PER_THREAD + y;
    T sums[PER_THREAD] = {};

    for (unsigned start = 0; start < inner; start += TILE) {
#pragma unroll
        for (int p = 0; p < PER_THREAD; ++p) {
            const unsigned row = first_row + p * TILE;
            const bool inside = row < rows && start + x < inner;
            tile_a[y + p * TILE][x] = inside ? a[size_t(row) * inner + start + x] : T(0);
        }
        tile_b[y][x] = start + y < inner && column < columns ? b[size_t(start + y) * columns + column] : T(0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k)
#pragma unroll
            for (int p = 0; p < PER_THREAD; ++p)
                sums[p] += tile_a[y + p * TILE][k] * tile_b[k][x];
        __syncthreads();
    }

#pragma unroll
    for (int p = 0; p < PER_THREAD; ++p) {
        const unsigned row = first_row + p * TILE;
        if (row < rows && column < columns)
            c[size_t(row) * columns + column] = sums[p];
    }
}
