/* XXH3-128 without a seed, as in the canonical implementation's description; the constants are its own.

   Entries have it of their descriptions and their payloads (gpucache/store/format.py). */
#define _GNU_SOURCE
#include "index.h"

#define P32_1 UINT64_C(0x9E3779B1)
#define P32_2 UINT64_C(0x85EBCA77)
#define P32_3 UINT64_C(0xC2B2AE3D)
#define P64_1 UINT64_C(0x9E3779B185EBCA87)
#define P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P64_3 UINT64_C(0x165667B19E3779F9)
#define P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define P64_5 UINT64_C(0x27D4EB2F165667C5)
#define STRIPE 64
#define BLOCK 1024 /* after which the accumulators are scrambled: 16 stripes, each with a later secret */

static const unsigned char secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

struct pair {
    uint64_t low, high;
};

static uint64_t half(const unsigned char *at) {
    return at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24;
}

static uint64_t swapped(uint64_t value) { return __builtin_bswap64(value); }
static uint64_t key_at(size_t at) { return number_at(secret + at); }

static struct pair product(uint64_t left, uint64_t right) {
    unsigned __int128 whole = (unsigned __int128)left * right;
    return (struct pair){(uint64_t)whole, (uint64_t)(whole >> 64)};
}

static uint64_t folded(uint64_t left, uint64_t right) {
    struct pair whole = product(left, right);
    return whole.low ^ whole.high;
}

static uint64_t avalanche(uint64_t sum) {
    sum = (sum ^ sum >> 37) * UINT64_C(0x165667919E3779F9);
    return sum ^ sum >> 32;
}

static uint64_t old_avalanche(uint64_t sum) {
    sum = (sum ^ sum >> 33) * P64_2;
    sum = (sum ^ sum >> 29) * P64_3;
    return sum ^ sum >> 32;
}

static struct pair of_few(const unsigned char *at, size_t size) {
    if (!size) return (struct pair){old_avalanche(key_at(64) ^ key_at(72)), old_avalanche(key_at(80) ^ key_at(88))};
    uint32_t low = (uint32_t)at[0] << 16 | (uint32_t)at[size >> 1] << 24 | at[size - 1] | (uint32_t)size << 8;
    uint32_t high = __builtin_bswap32(low);
    high = high << 13 | high >> 19;
    return (struct pair){old_avalanche(low ^ half(secret) ^ half(secret + 4)),
                         old_avalanche(high ^ half(secret + 8) ^ half(secret + 12))};
}

static struct pair of_8(const unsigned char *at, size_t size) {
    uint64_t both = half(at) + (half(at + size - 4) << 32);
    struct pair sum = product(both ^ key_at(16) ^ key_at(24), P64_1 + (size << 2));
    sum.high += sum.low << 1;
    sum.low ^= sum.high >> 3;
    sum.low = (sum.low ^ sum.low >> 35) * UINT64_C(0x9FB21C651E98DF25);
    sum.low ^= sum.low >> 28;
    sum.high = avalanche(sum.high);
    return sum;
}

static struct pair of_16(const unsigned char *at, size_t size) {
    uint64_t low = number_at(at), high = number_at(at + size - 8);
    struct pair sum = product(low ^ high ^ key_at(32) ^ key_at(40), P64_1);
    sum.low += (uint64_t)(size - 1) << 54;
    high ^= key_at(48) ^ key_at(56);
    sum.high += high + (uint32_t)high * (P32_2 - 1);
    sum.low ^= swapped(sum.high);
    struct pair last = product(sum.low, P64_2);
    last.high += sum.high * P64_2;
    return (struct pair){avalanche(last.low), avalanche(last.high)};
}

static uint64_t mixed(const unsigned char *at, size_t key) {
    return folded(number_at(at) ^ key_at(key), number_at(at + 8) ^ key_at(key + 8));
}

static void mix(struct pair *sum, const unsigned char *one, const unsigned char *other, size_t key) {
    sum->low = (sum->low + mixed(one, key)) ^ (number_at(other) + number_at(other + 8));
    sum->high = (sum->high + mixed(other, key + 16)) ^ (number_at(one) + number_at(one + 8));
}

static struct pair of_240(const unsigned char *at, size_t size) {
    struct pair sum = {size * P64_1, 0};
    if (size <= 128) {
        for (size_t from = (size - 1) / 32 + 1; from--;)
            mix(&sum, at + 16 * from, at + size - 16 * (from + 1), 32 * from);
    } else {
        for (size_t from = 0; from < 128; from += 32) mix(&sum, at + from, at + from + 16, from);
        sum = (struct pair){avalanche(sum.low), avalanche(sum.high)};
        for (size_t from = 128; from + 32 <= size; from += 32) mix(&sum, at + from, at + from + 16, from - 125);
        mix(&sum, at + size - 16, at + size - 32, 103);
    }
    return (struct pair){avalanche(sum.low + sum.high),
                         0 - avalanche(sum.low * P64_1 + sum.high * P64_4 + size * P64_2)};
}

/* Two lanes at a time, which compilers find instructions for. */
typedef uint64_t lanes __attribute__((vector_size(16)));

static lanes lanes_at(const unsigned char *at) { return (lanes){number_at(at), number_at(at + 8)}; }

static void add_stripe(lanes sums[4], const unsigned char *at, const unsigned char *key) {
    for (int i = 0; i < 4; i++) {
        lanes lane = lanes_at(at + 16 * i), keyed = lane ^ lanes_at(key + 16 * i);
        sums[i] += (lanes){lane[1], lane[0]} + (keyed & 0xffffffff) * (keyed >> 32);
    }
}

static uint64_t merged(const lanes sums[4], size_t key, uint64_t sum) {
    for (int i = 0; i < 4; i++)
        sum += folded(sums[i][0] ^ key_at(key + 16 * (size_t)i), sums[i][1] ^ key_at(key + 16 * (size_t)i + 8));
    return avalanche(sum);
}

static struct pair of_many(const unsigned char *at, size_t size) {
    lanes sums[] = {{P32_3, P64_1}, {P64_2, P64_3}, {P64_4, P32_2}, {P64_5, P32_1}};
    const unsigned char *last = at + size - STRIPE;
    for (size_t stripes = (size - 1) / STRIPE, in = 0; stripes; stripes--, at += STRIPE) {
        add_stripe(sums, at, secret + 8 * in);
        if (++in < BLOCK / STRIPE) continue;
        in = 0;
        for (int i = 0; i < 4; i++)
            sums[i] = (sums[i] ^ sums[i] >> 47 ^ lanes_at(secret + 128 + 16 * i)) * P32_1;
    }
    add_stripe(sums, last, secret + 121);
    return (struct pair){merged(sums, 11, size * P64_1), merged(sums, 117, ~(size * P64_2))};
}

void xxh3(const void *bytes, size_t size, unsigned char sum[16]) {
    const unsigned char *at = bytes;
    struct pair found = size > 240  ? of_many(at, size)
                        : size > 16 ? of_240(at, size)
                        : size > 8  ? of_16(at, size)
                        : size > 3  ? of_8(at, size)
                                    : of_few(at, size);
    found = (struct pair){swapped(found.low), swapped(found.high)};
    for (int i = 0; i < 8; i++) {
        sum[i] = (unsigned char)(found.high >> 8 * i);
        sum[8 + i] = (unsigned char)(found.low >> 8 * i);
    }
}
