// Philox 4x32-10: random numbers from a counter and a key, with no state to keep. J. Salmon, M. Moraes,
// R. Dror and D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#pragma once

struct Counter {
    unsigned words[4];
};

__device__ inline Counter philox(Counter counter, unsigned key_0, unsigned key_1)
{
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = 0xD2511F53ULL * counter.words[0];
        const unsigned long long b = 0xCD9E8D57ULL * counter.words[2];
        counter = {{unsigned(b >> 32) ^ counter.words[1] ^ key_0, unsigned(b),
                    unsigned(a >> 32) ^ counter.words[3] ^ key_1, unsigned(a)}};
        key_0 += 0x9E3779B9U;
        key_1 += 0xBB67AE85U;
    }
    return counter;
}

struct Normals {
    float values[4];
};

// Four normally distributed numbers (Box and Muller) for one place in one path.
__device__ inline Normals philox_normals(unsigned path, unsigned place, unsigned seed)
{
    const Counter random = philox({{path, place, 0, 0}}, seed, 0);
    Normals normals;
#pragma unroll
    for (int pair = 0; pair < 4; pair += 2) {
        const float uniform = (random.words[pair] + 0.5f) * 0x1p-32f; // in (0, 1]
        const float radius = sqrtf(-2.0f * logf(uniform));
        const float half_turns = random.words[pair + 1] * 0x1p-31f;
        normals.values[pair] = radius * cospif(half_turns);
        normals.values[pair + 1] = radius * sinpif(half_turns);
    }
    return normals;
}
