/* SHA-256 as FIPS 180-4 describes it: rows have it of a source in place of the source (gpucache/serve/index.py). */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "index.h"

#define BLOCK 64

static const uint32_t of_rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t value, int by) { return value >> by | value << (32 - by); }

static void add_blocks(uint32_t sum[8], const unsigned char *at, size_t count) {
    for (uint32_t w[64]; count; count--, at += BLOCK) {
        uint32_t v[8];
        memcpy(v, sum, sizeof v);
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)at[4 * i] << 24 | (uint32_t)at[4 * i + 1] << 16 | (uint32_t)at[4 * i + 2] << 8 | at[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
#pragma GCC unroll 8
        for (int i = 0; i < 64; i++) { /* the first of the eight is at a place that moves down */
            uint32_t a = v[-i & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7], e = v[(4 - i) & 7];
            uint32_t one = v[(7 - i) & 7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + of_rounds[i] + w[i] +
                           ((e & v[(5 - i) & 7]) ^ (~e & v[(6 - i) & 7]));
            v[(3 - i) & 7] += one;
            v[(7 - i) & 7] = one + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        }
        for (int i = 0; i < 8; i++) sum[i] += v[i];
    }
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* The same by the instructions that CPUs have for it, several times as fast. */
__attribute__((target("sha,sse4.1"))) static void add_fast(uint32_t sum[8], const unsigned char *at, size_t count) {
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203), *rounds = (const __m128i *)of_rounds;
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((__m128i *)sum), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((__m128i *)(sum + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0), w[4];
    for (; count; count--, at += BLOCK) {
        const __m128i before[] = {abef, cdgh};
        for (int i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)at + i), order);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *next = &w[i & 3], last = w[(i + 3) & 3], sums = _mm_add_epi32(*next, _mm_loadu_si128(rounds + i));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sums);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sums, 0x0e));
            __m128i part = _mm_add_epi32(_mm_sha256msg1_epu32(*next, w[(i + 1) & 3]), _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
            *next = _mm_sha256msg2_epu32(part, last);
        }
        abef = _mm_add_epi32(abef, before[0]);
        cdgh = _mm_add_epi32(cdgh, before[1]);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)sum, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(sum + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int is_fast(void) {
    static atomic_int known; /* in a virtual machine the question is slow */
    unsigned a, b = 0, c, d;
    if (!atomic_load(&known)) atomic_store(&known, __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1 ? 2 : 1);
    return atomic_load(&known) == 2;
}
#else
#define add_fast add_blocks
#define is_fast() 0
#endif

void sha256(const void *bytes, size_t size, unsigned char sum[32]) {
    uint32_t all[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char rest[2 * BLOCK] = {0};
    void (*add)(uint32_t *, const unsigned char *, size_t) = is_fast() ? add_fast : add_blocks;
    size_t left = size % BLOCK, end = left < BLOCK - 8 ? BLOCK : 2 * BLOCK;
    add(all, bytes, size / BLOCK);
    if (left) memcpy(rest, (const unsigned char *)bytes + size - left, left);
    rest[left] = 0x80;
    for (int i = 0; i < 8; i++) rest[end - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    add(all, rest, end / BLOCK);
    for (int i = 0; i < 32; i++) sum[i] = (unsigned char)(all[i / 4] >> (24 - i % 4 * 8));
}
