/* Decoding steps of Transformer blocks on a CPU: a few rows through packed linear layers and cached attention.

A step of few rows is bound by reading the weights. They lie in panels, PANEL outputs beside each other for every
input, so that they are read once, from beginning to end, whatever the number of rows (decision 192). Every output is
one sum over the inputs in their order: a row has the same bits alone and beside others. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
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
#define TILE 6 /* rows at a time: TILE × WIDE sums stay in registers */
#define PANEL (LANES * WIDE)
#define PARALLEL (1 << 20) /* multiplications that are worth waking other threads for */
#define AHEAD 8 /* slots of a KV cache that are fetched before they are read */
#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1)));

enum norms { NO_NORM, LAYER_NORM, RMS_NORM };
enum activations { NO_ACTIVATION, RELU, RELU2, GELU, GELU_TANH, SILU };

typedef struct {
    const void *panels;  /* (outputs / PANEL, inputs, PANEL) */
    const float *scale;  /* (outputs,) of int8 weights; null: float weights */
    const float *bias;   /* (outputs,), or null */
    int64_t inputs, outputs;
} Linear;

typedef struct {
    const float *gain, *bias;
    int64_t kind;
    double eps;
} Norm;

typedef struct {
    Norm attention_norm, query_norm, key_norm, feed_forward_norm;
    Linear query_key_value, output, up, gate, down; /* gate.panels null: no gate */
    const float *cos, *sin; /* (context, size / 2), or null */
    int64_t heads, kv_heads, size, window, pre, residual, activation;
    double scale;
} Block;

int64_t panel_width(void) { return PANEL; }

INLINE vec choose(ints where, vec yes, vec no) { return (vec)((where & (ints)yes) | (~where & (ints)no)); }

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

INLINE vec activated(vec x, int64_t activation) {
    switch (activation) {
    case RELU: return choose(x > 0, x, (vec){0});
    case RELU2: return choose(x > 0, x * x, (vec){0});
    case GELU: return x * 0.5f * (erf_of(x * 0.70710678f) + 1.0f);
    case GELU_TANH: return x / (exp_of((x + x * x * x * 0.044715f) * -1.59576912f) + 1.0f);
    case SILU: return x / (exp_of(-x) + 1.0f);
    default: return x;
    }
}

INLINE float sum_of(vec x) {
    float *part = (float *)&x;
#pragma GCC unroll 8
    for (int half = LANES / 2; half; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
}

/* Products of `rows` ≤ TILE inputs with a panel, by type of the weights; `ahead` is fetched meanwhile. */
#define MULTIPLY(NAME, TYPE, LOAD)                                                                                     \
    INLINE void NAME##_tile(const int rows, const float *x, int64_t stride, const TYPE *weight, int64_t inputs,        \
                            const char *ahead, vec sums[TILE][WIDE]) {                                                 \
        vec s[TILE][WIDE];                                                                                             \
        for (int r = 0; r < rows; r++)                                                                                 \
            for (int j = 0; j < WIDE; j++) s[r][j] = (vec){0};                                                         \
        for (int64_t k = 0; k < inputs; k++, weight += PANEL) {                                                        \
            if (rows > 1) /* one row reads as fast as memory allows anyway */                                          \
                for (int line = 0; line < 128; line += 64) __builtin_prefetch(ahead + 128 * k + line, 0, 2);           \
            vec w[WIDE];                                                                                               \
            for (int j = 0; j < WIDE; j++) w[j] = LOAD(weight + j * LANES);                                            \
            for (int r = 0; r < rows; r++)                                                                             \
                for (int j = 0; j < WIDE; j++) s[r][j] += x[r * stride + k] * w[j];                                    \
        }                                                                                                              \
        for (int r = 0; r < rows; r++)                                                                                 \
            for (int j = 0; j < WIDE; j++) sums[r][j] = s[r][j];                                                       \
    }                                                                                                                  \
    static void NAME(int64_t rows, const float *x, int64_t inputs, const TYPE *weight, const char *ahead,              \
                     vec sums[TILE][WIDE]) {                                                                           \
        switch (rows) {                                                                                                \
        case 1: NAME##_tile(1, x, inputs, weight, inputs, ahead, sums); break;                                         \
        case 2: NAME##_tile(2, x, inputs, weight, inputs, ahead, sums); break;                                         \
        case 3: NAME##_tile(3, x, inputs, weight, inputs, ahead, sums); break;                                         \
        case 4: NAME##_tile(4, x, inputs, weight, inputs, ahead, sums); break;                                         \
        case 5: NAME##_tile(5, x, inputs, weight, inputs, ahead, sums); break;                                         \
        default: NAME##_tile(TILE, x, inputs, weight, inputs, ahead, sums);                                            \
        }                                                                                                              \
    }
#define LOAD_FLOAT(p) (*(const vec *)(p))
#if defined(__AVX512F__) /* which GCC does not make of the conversion below */
#define LOAD_INT8(p) (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#elif defined(__AVX2__)
#define LOAD_INT8(p) (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#else
#define LOAD_INT8(p) __builtin_convertvector(*(const bytes *)(p), vec)
#endif
MULTIPLY(multiply_float, float, LOAD_FLOAT)
MULTIPLY(multiply_int8, int8_t, LOAD_INT8)

/* y (rows, outputs) = activation(x (rows, inputs) · weightᵀ + bias), times `gate` or plus `residual` where given. */
void linear(const Linear *layer, const float *x, int64_t rows, int64_t activation, const float *gate,
            const float *residual, float *y, int64_t threads) {
    int64_t inputs = layer->inputs, outputs = layer->outputs, panels = (outputs + PANEL - 1) / PANEL;
    int64_t tiles = (rows + TILE - 1) / TILE, weight = layer->scale ? sizeof(int8_t) : sizeof(float);
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * inputs * outputs > PARALLEL)
    for (int64_t panel = 0; panel < panels; panel++) {
        int64_t first = panel * PANEL, width = outputs - first < PANEL ? outputs - first : PANEL;
        for (int64_t tile = 0; tile < tiles; tile++) {
            int64_t from = rows * tile / tiles, count = rows * (tile + 1) / tiles - from; /* of about equal size */
            vec sums[TILE][WIDE];
            /* Each tile fetches a part of the next panel into the cache while it computes. */
            const char *ahead = (const char *)layer->panels + (first + PANEL) * inputs * weight + tile * inputs * 128;
            const float *input = x + from * inputs;
            if (layer->scale)
                multiply_int8(count, input, inputs, (const int8_t *)layer->panels + first * inputs, ahead, sums);
            else
                multiply_float(count, input, inputs, (const float *)layer->panels + first * inputs, ahead, sums);
            for (int64_t r = 0; r < count; r++) {
                float out[PANEL];
                float *row = (float *)sums[r];
                for (int64_t n = 0; n < width; n++) {
                    float scaled = layer->scale ? row[n] * layer->scale[first + n] : row[n];
                    out[n] = layer->bias ? scaled + layer->bias[first + n] : scaled;
                }
                int64_t at = (from + r) * outputs + first;
                if (activation)
                    for (int j = 0; j < PANEL; j += LANES) *(vec *)(out + j) = activated(*(vec *)(out + j), activation);
                if (gate)
                    for (int64_t n = 0; n < width; n++) out[n] *= gate[at + n];
                if (residual)
                    for (int64_t n = 0; n < width; n++) out[n] += residual[at + n];
                memcpy(y + at, out, width * sizeof(float));
            }
        }
    }
}

static void normalize(const Norm *norm, const float *x, int64_t width, float *y) {
    double sum = 0, squares = 0;
    float mean = 0;
    if (norm->kind == LAYER_NORM) {
        for (int64_t i = 0; i < width; i++) sum += x[i];
        mean = sum / width;
    }
    for (int64_t i = 0; i < width; i++) squares += (double)(x[i] - mean) * (x[i] - mean);
    float scale = 1 / sqrt(squares / width + norm->eps);
    for (int64_t i = 0; i < width; i++) {
        float normal = (x[i] - mean) * scale;
        y[i] = (norm->gain ? normal * norm->gain[i] : normal) + (norm->bias ? norm->bias[i] : 0);
    }
}

static const float *normalized(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    if (norm->kind == NO_NORM) return x;
    for (int64_t r = 0; r < rows; r++) normalize(norm, x + r * width, width, y + r * width);
    return y;
}

static void rotate(const Block *block, float *head, int64_t position) {
    int64_t half = block->size / 2;
    const float *cos = block->cos + position * half, *sin = block->sin + position * half;
    for (int64_t i = 0; i < half; i++) {
        float first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

INLINE float dot(const float *a, const float *b, int64_t size) {
    vec sums = {0};
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) sums += *(vec *)(a + i) * *(vec *)(b + i);
    float total = sum_of(sums);
    for (; i < size; i++) total += a[i] * b[i];
    return total;
}

INLINE void fetch(const float *from, int64_t count) { /* into the cache, before it is read */
    for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(from + i, 0, 2);
}

static void softmax(float *scores, int64_t count) {
    float greatest = -INFINITY;
    for (int64_t j = 0; j < count; j++) greatest = scores[j] > greatest ? scores[j] : greatest;
    vec sums = {0};
    for (int64_t j = count; j < count + LANES; j++) scores[j] = greatest - 200; /* to the end of a vector, weight 0 */
    for (int64_t j = 0; j < count; j += LANES) {
        vec shifted = *(vec *)(scores + j) - greatest;
        sums += *(vec *)(scores + j) = choose(shifted < -87.0f, (vec){0}, exp_of(shifted));
    }
    float scale = 1 / sum_of(sums);
    for (int64_t j = 0; j < count; j++) scores[j] *= scale;
}

/* out += the sum of `count` values, `stride` apart, by their weights */
INLINE void accumulate(const int count, const float *weights, const float *value, int64_t stride, int64_t size,
                       float *out) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        vec sum = *(vec *)(out + i);
        for (int n = 0; n < count; n++) sum += weights[n] * *(vec *)(value + n * stride + i);
        *(vec *)(out + i) = sum;
    }
    for (; i < size; i++)
        for (int n = 0; n < count; n++) out[i] += weights[n] * value[n * stride + i];
}

/* Attention of a row's query heads to slots [from, to) of key-value heads [first, last): out = softmax(query · keys ·
scale) · values. All heads of a slot are read before the next slot, as they lie in memory. scores (heads, room) is
scratch. */
static void attend(const Block *block, const float *query, const float *key, const float *value, int64_t from,
                   int64_t to, int64_t first, int64_t last, int64_t room, float *scores, float *out) {
    int64_t size = block->size, group = block->heads / block->kv_heads, stride = block->kv_heads * size, j = from;
    int64_t begin = first * group, end = last * group; /* query heads */
    for (; j < to; j++) {
        const float *slot = key + j * stride;
        fetch(slot + AHEAD * stride + first * size, (last - first) * size);
        for (int64_t h = begin; h < end; h++)
            scores[h * room + j - from] = dot(query + h * size, slot + h / group * size, size) * block->scale;
    }
    for (int64_t h = begin; h < end; h++) softmax(scores + h * room, to - from);
    memset(out + begin * size, 0, (end - begin) * size * sizeof(float));
    for (j = from; j < to; j += 4) {
        const float *slot = value + j * stride, *weights = scores + j - from;
        for (int64_t n = 0; n < 4; n++) fetch(slot + (n + AHEAD) * stride + first * size, (last - first) * size);
        for (int64_t h = begin; h < end; h++) {
            const float *head = slot + h / group * size;
            if (j + 4 <= to)
                accumulate(4, weights + h * room, head, stride, size, out + h * size);
            else
                for (int64_t n = 0; j + n < to; n++)
                    accumulate(1, weights + h * room + n, head + n * stride, stride, size, out + h * size);
        }
    }
}

/* The self-attention sublayer of one new token of each row: x (rows, width) to y. Keys and values of a row, (slots + 1,
kv_heads, size), begin `row_stride` apart; `length` (rows,) counts its tokens. A new token that is not counted, or finds
no slot, goes to the last, which is never read. */
void attention_sublayer(const Block *block, const float *x, int64_t rows, const int64_t *positions,
                        const int64_t *length, float *key, float *value, int64_t row_stride, int64_t slots, float *y,
                        int64_t threads) {
    int64_t width = block->output.outputs, size = block->size, heads = block->heads, kv_heads = block->kv_heads;
    int64_t projected = block->query_key_value.outputs, stride = kv_heads * size;
    int64_t inner = heads * size, room = slots + 2 * LANES;
    float *scratch = malloc(sizeof(float) * rows * (width + projected + inner + heads * room));
    float *normal = scratch, *qkv = normal + rows * width, *attended = qkv + rows * projected;
    float *scores = attended + rows * inner;
    const float *input = block->pre ? normalized(&block->attention_norm, x, rows, width, normal) : x;
    linear(&block->query_key_value, input, rows, NO_ACTIVATION, NULL, NULL, qkv, threads);
    for (int64_t r = 0; r < rows; r++) {
        float *query = qkv + r * projected, *new_key = query + inner, *new_value = new_key + stride;
        int64_t position = positions[r], slot = position < slots && position < length[r] ? position : slots;
        for (int64_t h = 0; h < heads + kv_heads; h++) {
            float *head = query + h * size;
            const Norm *norm = h < heads ? &block->query_norm : &block->key_norm;
            if (norm->kind != NO_NORM) normalize(norm, head, size, head);
            if (block->cos) rotate(block, head, position);
        }
        memcpy(key + r * row_stride + slot * stride, new_key, stride * sizeof(float));
        memcpy(value + r * row_stride + slot * stride, new_value, stride * sizeof(float));
    }
    int64_t parts = rows < threads && threads <= kv_heads ? threads : 1; /* heads are shared out where rows are few */
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * slots * inner > PARALLEL)
    for (int64_t n = 0; n < rows * parts; n++) {
        int64_t r = n / parts, part = n % parts, to = length[r] < slots ? length[r] : slots;
        int64_t from = block->window && to > block->window ? to - block->window : 0;
        int64_t first = kv_heads * part / parts, last = kv_heads * (part + 1) / parts;
        attend(block, qkv + r * projected, key + r * row_stride, value + r * row_stride, from, to, first, last, room,
               scores + r * heads * room, attended + r * inner);
    }
    linear(&block->output, attended, rows, NO_ACTIVATION, NULL, block->residual ? x : NULL, y, threads);
    if (!block->pre) normalized(&block->attention_norm, y, rows, width, y);
    free(scratch);
}

/* The feed-forward sublayer: x (rows, width) to y. */
void feed_forward_sublayer(const Block *block, const float *x, int64_t rows, float *y, int64_t threads) {
    int64_t width = block->down.outputs, inner = block->up.outputs;
    float *scratch = malloc(sizeof(float) * rows * (width + 2 * inner));
    float *hidden = scratch + rows * width, *gate = hidden + rows * inner;
    const float *input = block->pre ? normalized(&block->feed_forward_norm, x, rows, width, scratch) : x;
    if (block->gate.panels) linear(&block->gate, input, rows, SILU, NULL, NULL, gate, threads);
    linear(&block->up, input, rows, block->activation, block->gate.panels ? gate : NULL, NULL, hidden, threads);
    linear(&block->down, hidden, rows, NO_ACTIVATION, NULL, block->residual ? x : NULL, y, threads);
    if (!block->pre) normalized(&block->feed_forward_norm, y, rows, width, y);
    free(scratch);
}
