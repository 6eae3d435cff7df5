// Sorts, scans and sums tiles of an array with CUB, the block-level part of NVIDIA's C++ libraries. The
// program is short, and yet each instance of a template takes in four hundred headers: this is where NVRTC
// is slow, and where a cache has most to look after. A block of THREADS handles THREADS x ITEMS elements.

#if !__has_include(<cub/block/block_radix_sort.cuh>)
#error "CUB is not on the include path; cub.toml says which -I are needed"
#endif

#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

// Sorts each tile by key, values along with their keys.
template <typename Key, int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) sort_tiles(Key *keys, unsigned *values)
{
    using LoadKeys = cub::BlockLoad<Key, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
    using LoadValues = cub::BlockLoad<unsigned, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<Key, THREADS, ITEMS, unsigned>;
    __shared__ union {
        typename LoadKeys::TempStorage keys;
        typename LoadValues::TempStorage values;
        typename Sort::TempStorage sort;
    } shared;
    const size_t first = size_t(blockIdx.x) * THREADS * ITEMS;
    Key own_keys[ITEMS];
    unsigned own_values[ITEMS];

    LoadKeys(shared.keys).Load(keys + first, own_keys);
    __syncthreads();
    LoadValues(shared.values).Load(values + first, own_values);
    __syncthreads();
    Sort(shared.sort).SortBlockedToStriped(own_keys, own_values);
    cub::StoreDirectStriped<THREADS>(threadIdx.x, keys + first, own_keys);
    cub::StoreDirectStriped<THREADS>(threadIdx.x, values + first, own_values);
}

// Replaces each element by the sum of those before it in its tile, and gives the sum of each tile.
template <typename T, int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) scan_tiles(T *data, T *sums)
{
    using Load = cub::BlockLoad<T, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE>;
    using Store = cub::BlockStore<T, THREADS, ITEMS, cub::BLOCK_STORE_TRANSPOSE>;
    using Scan = cub::BlockScan<T, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Store::TempStorage store;
        typename Scan::TempStorage scan;
    } shared;
    const size_t first = size_t(blockIdx.x) * THREADS * ITEMS;
    T own[ITEMS], sum;

    Load(shared.load).Load(data + first, own);
    __syncthreads();
    Scan(shared.scan).ExclusiveSum(own, own, sum);
    __syncthreads();
    Store(shared.store).Store(data + first, own);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

// The sum of each tile of an array of n elements, of which the last may be a part.
template <typename T, int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) sum_tiles(const T *data, T *sums, unsigned n)
{
    using Reduce = cub::BlockReduce<T, THREADS>;
    __shared__ typename Reduce::TempStorage shared;
    const size_t first = size_t(blockIdx.x) * THREADS * ITEMS;
    T own = T(0);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const size_t at = first + i * THREADS + threadIdx.x;
        own += at < n ? data[at] : T(0);
    }
    const T sum = Reduce(shared).Sum(own);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}
