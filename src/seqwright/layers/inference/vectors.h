/* Vectors of floats, as wide as the processor has them: exponential and error function, sums and maxima. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define WIDE 4 /* vectors of a panel */
#elif defined(__AVX2__)
#define LANES 8
#define WIDE 2
#else
#define LANES 4
#define WIDE 4
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2))); /* bfloat16 */
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE vec choose(ints where, vec yes, vec no) { return (vec)((where & (ints)yes) | (~where & (ints)no)); }

/* bfloat16, the upper half of a float; narrowed to the nearest, ties to even. */
INLINE vec widened(const uint16_t *from) {
#if defined(__AVX512F__) /* which GCC does not make of the conversion below */
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
#elif defined(__AVX2__)
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16);
#else
    return (vec)(__builtin_convertvector(*(const halves *)from, words) << 16);
#endif
}

INLINE float widened_one(const uint16_t *from) {
    uint32_t bits = (uint32_t)*from << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

INLINE void narrow_one(uint16_t *to, float x) { /* NaN stays one */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *to = x != x ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

INLINE void narrow(uint16_t *to, vec x) {
#if defined(__AVX512BF16__) && LANES == 16
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
    words bits = (words)choose(x == x, x, (vec){0} + NAN);
    *(halves *)to = __builtin_convertvector((bits + 0x7FFF + (bits >> 16 & 1)) >> 16, halves);
#endif
}

INLINE vec exp_of(vec x) { /* 2ⁿ · eʳ with |r| ≤ ln 2 / 2, Cephes' polynomial: within 2 units in the last place */
    x = choose(x < -87.0f, (vec){0} - 87.0f, x);
    x = choose(x > 88.0f, (vec){0} + 88.0f, x);
    vec shifted = x * 1.44269504f + 12582912.0f; /* rounds to an integer in the low bits */
    ints n = (ints)shifted - 0x4B400000;
    vec whole = shifted - 12582912.0f;
    vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * (vec)((n + 127) << 23);
}

INLINE vec erf_of(vec x) { /* Abramowitz & Stegun 7.1.26, within 1.5e-7 */
    vec size = choose(x < 0, -x, x);
    vec t = 1.0f / (size * 0.3275911f + 1.0f);
    vec p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    vec y = 1.0f - p * t * exp_of(-size * size);
    return choose(x < 0, -y, y);
}

/* Lane sums of two vectors, each of groups of `g` lanes: half as many lanes for each group, those of `a` first. */
#define LOW(i, g) (((i) / ((g) / 2) < LANES / (g) ? 0 : LANES) + (i) / ((g) / 2) % (LANES / (g)) * (g) + (i) % ((g) / 2))
#define HIGH(i, g) (LOW(i, g) + (g) / 2)
#define FOUR(F, i, g) F(i, g), F(i + 1, g), F(i + 2, g), F(i + 3, g)
#if LANES == 16
#define EACH(F, g) FOUR(F, 0, g), FOUR(F, 4, g), FOUR(F, 8, g), FOUR(F, 12, g)
#elif LANES == 8
#define EACH(F, g) FOUR(F, 0, g), FOUR(F, 4, g)
#else
#define EACH(F, g) FOUR(F, 0, g)
#endif
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ints){__VA_ARGS__})
#endif
/* Lanes of two vectors in turns: the first LANES of them, and the last. */
#define FIRST_IN_TURNS(i, g) ((i) / 2 + ((i) % 2 ? LANES : 0))
#define LAST_IN_TURNS(i, g) (LANES / 2 + FIRST_IN_TURNS(i, g))
#define FOLD(a, b, g) (SHUFFLE(a, b, EACH(LOW, g)) + SHUFFLE(a, b, EACH(HIGH, g)))

/* The sum of each of LANES vectors. */
INLINE vec sums_of(vec x[LANES]) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) x[i] = FOLD(x[2 * i], x[2 * i + 1], LANES);
#pragma GCC unroll 4
    for (int i = 0; i < LANES / 4; i++) x[i] = FOLD(x[2 * i], x[2 * i + 1], LANES / 2);
#if LANES >= 8
#pragma GCC unroll 2
    for (int i = 0; i < LANES / 8; i++) x[i] = FOLD(x[2 * i], x[2 * i + 1], LANES / 4);
#endif
#if LANES >= 16
    x[0] = FOLD(x[0], x[1], 2);
#endif
    return x[0];
}

INLINE float sum_of(vec x) {
    x = FOLD(x, x, LANES);
    x = FOLD(x, x, LANES / 2);
#if LANES >= 8
    x = FOLD(x, x, LANES / 4);
#endif
#if LANES >= 16
    x = FOLD(x, x, 2);
#endif
    return x[0];
}

INLINE float greatest_of(const float *x, int64_t count) {
    vec most = (vec){0} - INFINITY;
    float greatest = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) most = choose(*(vec *)(x + i) > most, *(vec *)(x + i), most);
    for (int n = 0; n < LANES; n++) greatest = most[n] > greatest ? most[n] : greatest;
    for (; i < count; i++) greatest = x[i] > greatest ? x[i] : greatest;
    return greatest;
}
