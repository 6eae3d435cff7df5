// Batched complex FFTs of 256 to 4096 points, forward and inverse: what a radio, radar or audio
// pipeline runs on every block of samples. One work-group transforms one signal in local memory.
//
// Each stage is a Stockham step: every work item reads the inputs of its butterflies, all wait, and
// the results go back to where the next stage expects them, so nothing is reordered at the end. Every
// size is a kernel of its own with all its loops known to the compiler, as FFT libraries do for speed;
// that is what makes compilers slow here. It is the example whose start a cache changes most. LARGEST is
// the size up to which there are kernels.

#define ITEMS 64
#ifndef LARGEST
#define LARGEST 4096
#endif

#define FORWARD (-1.0f)
#define INVERSE (1.0f)

static float2 times(float2 a, float2 b)
{
    return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// exp(i pi h): a rotation given in half turns.
static float2 rotation(float half_turns)
{
    return (float2)(cospi(half_turns), sinpi(half_turns));
}

static float2 quarter_turn(float2 a, float sign)
{
    return (float2)(-sign * a.y, sign * a.x);
}

static void butterfly_4(float2 *v, float sign)
{
    const float2 even = v[0] + v[2], even_gap = v[0] - v[2];
    const float2 odd = v[1] + v[3], odd_gap = quarter_turn(v[1] - v[3], sign);
    v[0] = even + odd;
    v[1] = even_gap + odd_gap;
    v[2] = even - odd;
    v[3] = even_gap - odd_gap;
}

static void butterfly_8(float2 *v, float sign)
{
    const float diagonal = 0.70710678f;
    float2 even[4] = {v[0], v[2], v[4], v[6]};
    float2 odd[4] = {v[1], v[3], v[5], v[7]};
    butterfly_4(even, sign);
    butterfly_4(odd, sign);
    odd[1] = times(odd[1], (float2)(diagonal, sign * diagonal));
    odd[2] = quarter_turn(odd[2], sign);
    odd[3] = times(odd[3], (float2)(-diagonal, sign * diagonal));
    for (uint k = 0; k < 4; ++k) {
        v[k] = even[k] + odd[k];
        v[k + 4] = even[k] - odd[k];
    }
}

// One stage of `points` points, of which `done` are already combined into each shorter transform.
#define DEFINE_STAGE(RADIX)                                                                               \
    static void stage_##RADIX(local float2 *signal, const uint points, const uint done, const float sign) \
    {                                                                                                     \
        const uint per_item = points / RADIX / ITEMS;                                                     \
        const uint item = get_local_id(0);                                                                \
        float2 v[LARGEST / ITEMS];                                                                        \
        for (uint b = 0; b < per_item; ++b) {                                                             \
            const uint j = item + b * ITEMS;                                                              \
            const float step = sign * 2.0f * (float)(j % done) / (float)(done * RADIX);                   \
            v[b * RADIX] = signal[j];                                                                     \
            for (uint r = 1; r < RADIX; ++r)                                                              \
                v[b * RADIX + r] = times(signal[j + r * (points / RADIX)], rotation(step * (float)r));    \
            butterfly_##RADIX(&v[b * RADIX], sign);                                                       \
        }                                                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                     \
        for (uint b = 0; b < per_item; ++b) {                                                             \
            const uint j = item + b * ITEMS;                                                              \
            const uint first = (j / done) * done * RADIX + j % done;                                      \
            for (uint r = 0; r < RADIX; ++r)                                                              \
                signal[first + r * done] = v[b * RADIX + r];                                              \
        }                                                                                                 \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                     \
    }

DEFINE_STAGE(4)
DEFINE_STAGE(8)

#define STAGES_256(SIGN)            \
    stage_4(signal, 256, 1, SIGN);  \
    stage_4(signal, 256, 4, SIGN);  \
    stage_4(signal, 256, 16, SIGN); \
    stage_4(signal, 256, 64, SIGN);

#define STAGES_512(SIGN)            \
    stage_8(signal, 512, 1, SIGN);  \
    stage_8(signal, 512, 8, SIGN);  \
    stage_8(signal, 512, 64, SIGN);

#define STAGES_1024(SIGN)             \
    stage_8(signal, 1024, 1, SIGN);   \
    stage_8(signal, 1024, 8, SIGN);   \
    stage_4(signal, 1024, 64, SIGN);  \
    stage_4(signal, 1024, 256, SIGN);

#define STAGES_2048(SIGN)             \
    stage_8(signal, 2048, 1, SIGN);   \
    stage_8(signal, 2048, 8, SIGN);   \
    stage_8(signal, 2048, 64, SIGN);  \
    stage_4(signal, 2048, 512, SIGN);

#define STAGES_4096(SIGN)            \
    stage_8(signal, 4096, 1, SIGN);  \
    stage_8(signal, 4096, 8, SIGN);  \
    stage_8(signal, 4096, 64, SIGN); \
    stage_8(signal, 4096, 512, SIGN);

// Transforms `count` signals in place, one for each work-group; further groups do nothing.
#define DEFINE_FFT(NAME, POINTS, SIGN, SCALE)                      \
    kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))      \
    void NAME(global float2 *signals, const uint count)            \
    {                                                              \
        local float2 signal[POINTS];                               \
        const bool wanted = get_group_id(0) < count;               \
        global float2 *own = signals + get_group_id(0) * POINTS;   \
        for (uint i = get_local_id(0); i < POINTS; i += ITEMS)     \
            signal[i] = wanted ? own[i] : (float2)(0.0f);          \
        barrier(CLK_LOCAL_MEM_FENCE);                              \
        STAGES_##POINTS(SIGN)                                      \
        if (wanted)                                                \
            for (uint i = get_local_id(0); i < POINTS; i += ITEMS) \
                own[i] = signal[i] * (SCALE);                      \
    }

DEFINE_FFT(fft_256, 256, FORWARD, 1.0f)
DEFINE_FFT(inverse_fft_256, 256, INVERSE, 1.0f / 256)
#if LARGEST >= 512
DEFINE_FFT(fft_512, 512, FORWARD, 1.0f)
DEFINE_FFT(inverse_fft_512, 512, INVERSE, 1.0f / 512)
#endif
#if LARGEST >= 1024
DEFINE_FFT(fft_1024, 1024, FORWARD, 1.0f)
DEFINE_FFT(inverse_fft_1024, 1024, INVERSE, 1.0f / 1024)
#endif
#if LARGEST >= 2048
DEFINE_FFT(fft_2048, 2048, FORWARD, 1.0f)
DEFINE_FFT(inverse_fft_2048, 2048, INVERSE, 1.0f / 2048)
#endif
#if LARGEST >= 4096
DEFINE_FFT(fft_4096, 4096, FORWARD, 1.0f)
DEFINE_FFT(inverse_fft_4096, 4096, INVERSE, 1.0f / 4096)
#endif
