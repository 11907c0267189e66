/* Decoding steps of Transformer blocks on a CPU: a few rows through packed linear layers and cached attention.

A step of few rows is bound by reading the weights. They lie in panels, PANEL outputs beside each other for every
input, so that they are read once, from beginning to end, whatever the number of rows (decision 192). Every output is
one sum over the inputs in their order: a row has the same bits alone and beside others. Weights and KV cache may be
bfloat16; sums, normalizations and what lies between layers are float (decision 213). Functions that need memory return
0, or OUT_OF_MEMORY. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

#define TILE 6 /* rows at a time: TILE × WIDE sums stay in registers */
#define PANEL (LANES * WIDE)
#define OUT_OF_MEMORY 1
#define PARALLEL (1 << 20) /* multiplications that are worth waking other threads for */
enum norms { NO_NORM, LAYER_NORM, RMS_NORM };
enum activations { NO_ACTIVATION, RELU, RELU2, GELU, GELU_TANH, SILU };
enum types { FLOAT, INT8, BFLOAT16 };

typedef struct {
    const void *panels; /* (outputs / PANEL, inputs, PANEL); bfloat16: (outputs / PANEL, inputs / 2, PANEL, 2) */
    const float *scale; /* (outputs,) of int8 weights, else null */
    const float *bias;  /* (outputs,), or null */
    int64_t inputs, outputs, type;
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

/* Products of `rows` ≤ TILE inputs with a panel, by type of the weights; `ahead` is fetched meanwhile. */
#define MULTIPLY(NAME, INPUT, WEIGHT, VECTOR, LOAD, ADD)                                                               \
    INLINE void NAME##_tile(const int rows, const INPUT *x, int64_t stride, const WEIGHT *weight, const char *ahead,   \
                            vec sums[TILE][WIDE]) {                                                                    \
        vec s[TILE][WIDE];                                                                                             \
        for (int r = 0; r < rows; r++)                                                                                 \
            for (int j = 0; j < WIDE; j++) s[r][j] = (vec){0};                                                         \
        for (int64_t k = 0; k < stride; k++, weight += PANEL) {                                                        \
            if (rows > 1) /* one row reads as fast as memory allows anyway */                                          \
                for (int line = 0; line < 128; line += 64) __builtin_prefetch(ahead + 128 * k + line, 0, 2);           \
            VECTOR w[WIDE];                                                                                            \
            for (int j = 0; j < WIDE; j++) w[j] = LOAD(weight + j * LANES);                                            \
            for (int r = 0; r < rows; r++)                                                                             \
                for (int j = 0; j < WIDE; j++) s[r][j] = ADD(s[r][j], x[r * stride + k], w[j]);                        \
        }                                                                                                              \
        for (int r = 0; r < rows; r++)                                                                                 \
            for (int j = 0; j < WIDE; j++) sums[r][j] = s[r][j];                                                       \
    }                                                                                                                  \
    static void NAME(int64_t rows, const INPUT *x, int64_t stride, const WEIGHT *weight, const char *ahead,            \
                     vec sums[TILE][WIDE]) {                                                                           \
        switch (rows) {                                                                                                \
        case 1: NAME##_tile(1, x, stride, weight, ahead, sums); break;                                                 \
        case 2: NAME##_tile(2, x, stride, weight, ahead, sums); break;                                                 \
        case 3: NAME##_tile(3, x, stride, weight, ahead, sums); break;                                                 \
        case 4: NAME##_tile(4, x, stride, weight, ahead, sums); break;                                                 \
        case 5: NAME##_tile(5, x, stride, weight, ahead, sums); break;                                                 \
        default: NAME##_tile(TILE, x, stride, weight, ahead, sums);                                                    \
        }                                                                                                              \
    }
#define LOAD_FLOAT(p) (*(const vec *)(p))
#define LOAD_PAIRS(p) (*(const words *)(p))
#if defined(__AVX512F__) /* as in vectors.h */
#define LOAD_INT8(p) (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#elif defined(__AVX2__)
#define LOAD_INT8(p) (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#else
#define LOAD_INT8(p) __builtin_convertvector(*(const bytes *)(p), vec)
#endif
#define ADD_PRODUCT(s, x, w) (s + x * w)
#if defined(__AVX512BF16__) && LANES == 16 /* two products at once, of inputs that are rounded, too */
typedef uint32_t Pair;
#define ADD_PAIRS(s, x, w) (vec)_mm512_dpbf16_ps((__m512)(s), (__m512bh)_mm512_set1_epi32(x), (__m512bh)(w))
#else
typedef struct {
    float first, second;
} Pair;
#define ADD_PAIRS(s, x, w) (s + x.first * (vec)(w << 16) + x.second * (vec)(w & 0xFFFF0000u))
#endif
MULTIPLY(multiply_float, float, float, vec, LOAD_FLOAT, ADD_PRODUCT)
MULTIPLY(multiply_int8, float, int8_t, vec, LOAD_INT8, ADD_PRODUCT)
MULTIPLY(multiply_bfloat16, Pair, uint32_t, words, LOAD_PAIRS, ADD_PAIRS)

/* x in bfloat16 */
static void round_to(uint16_t *out, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) narrow(out + i, *(const vec *)(x + i));
    for (; i < count; i++) narrow_one(out + i, x[i]);
}

/* Inputs of bfloat16 weights two by two: x itself, or rounded into memory to be freed. */
static Pair *pairs_of(const float *x, int64_t count) {
#if defined(__AVX512BF16__) && LANES == 16
    uint16_t *out = malloc(2 * count + 1); /* a null pointer for no bytes would not be an error */
    if (out) round_to(out, x, count);
    return (Pair *)out;
#else
    return (Pair *)x;
#endif
}

/* sums + the products of numbers in bfloat16, two beside each other in a lane */
INLINE vec add_pairs(vec sums, words x, words y) {
#if defined(__AVX512BF16__) && LANES == 16
    return (vec)_mm512_dpbf16_ps((__m512)sums, (__m512bh)x, (__m512bh)y);
#else
    return sums + (vec)(x << 16) * (vec)(y << 16) + (vec)(x & 0xFFFF0000u) * (vec)(y & 0xFFFF0000u);
#endif
}

/* y (rows, outputs) = activation(x (rows, inputs) · weightᵀ + bias), times `gate` or plus `residual` where given. */
int64_t linear(const Linear *layer, const float *x, int64_t rows, int64_t activation, const float *gate,
               const float *residual, float *y, int64_t threads) {
    int64_t inputs = layer->inputs, outputs = layer->outputs, panels = (outputs + PANEL - 1) / PANEL;
    int64_t tiles = (rows + TILE - 1) / TILE, steps = layer->type == BFLOAT16 ? inputs / 2 : inputs;
    int64_t weight = layer->type == INT8 ? 1 : layer->type == FLOAT ? 4 : 2; /* bytes */
    Pair *pairs = layer->type == BFLOAT16 ? pairs_of(x, rows * inputs) : NULL;
    if (layer->type == BFLOAT16 && !pairs) return OUT_OF_MEMORY;
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * inputs * outputs > PARALLEL)
    for (int64_t panel = 0; panel < panels; panel++) {
        int64_t first = panel * PANEL, width = outputs - first < PANEL ? outputs - first : PANEL;
        for (int64_t tile = 0; tile < tiles; tile++) {
            int64_t from = rows * tile / tiles, count = rows * (tile + 1) / tiles - from; /* of about equal size */
            vec sums[TILE][WIDE];
            /* The first tiles fetch the next panel into the cache while they compute. What lies behind it would drive out
            this one and the inputs before it is read: the others find what they fetch in the cache. */
            int64_t fetched = tile * steps * 128, size = PANEL * inputs * weight;
            const char *here = (const char *)layer->panels + first * inputs * weight;
            const char *ahead = fetched < size ? here + size + fetched : here;
            if (layer->type == INT8)
                multiply_int8(count, x + from * inputs, steps, (const int8_t *)here, ahead, sums);
            else if (layer->type == BFLOAT16)
                multiply_bfloat16(count, pairs + from * steps, steps, (const uint32_t *)here, ahead, sums);
            else
                multiply_float(count, x + from * inputs, steps, (const float *)here, ahead, sums);
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
                if (width == PANEL)
                    memcpy(y + at, out, sizeof out); /* of known size: no call */
                else
                    memcpy(y + at, out, width * sizeof(float));
            }
        }
    }
    if ((void *)pairs != (void *)x) free(pairs);
    return 0;
}

static void normalize(const Norm *norm, const float *x, int64_t width, float *y) {
    int64_t whole = width - width % LANES;
    float mean = 0, squares = 0;
    vec sums = {0};
    if (norm->kind == LAYER_NORM) {
        for (int64_t i = 0; i < whole; i += LANES) sums += *(vec *)(x + i);
        mean = sum_of(sums);
        for (int64_t i = whole; i < width; i++) mean += x[i];
        mean /= width;
    }
    sums = (vec){0};
    for (int64_t i = 0; i < whole; i += LANES) sums += (*(vec *)(x + i) - mean) * (*(vec *)(x + i) - mean);
    squares = sum_of(sums);
    for (int64_t i = whole; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
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

static void softmax(float *scores, int64_t count) {
    float greatest = greatest_of(scores, count);
    vec sums = {0};
    for (int64_t j = count; j < count + LANES; j++) scores[j] = greatest - 200; /* to the end of a vector, weight 0 */
    for (int64_t j = 0; j < count; j += LANES) {
        vec shifted = *(vec *)(scores + j) - greatest;
        sums += *(vec *)(scores + j) = choose(shifted < -87.0f, (vec){0}, exp_of(shifted));
    }
    float scale = 1 / sum_of(sums);
    for (int64_t j = 0; j < count; j++) scores[j] *= scale;
}

/* LANES numbers of a KV cache, float or bfloat16 (`half`). */
INLINE vec cached(const void *at, int64_t i, const int half) {
    if (!half) return *(const vec *)((const float *)at + i);
    return widened((const uint16_t *)at + i);
}

INLINE float cached_one(const void *at, int64_t i, const int half) {
    if (!half) return ((const float *)at)[i];
    return widened_one((const uint16_t *)at + i);
}

/* Products of a query, in `pairs` rounded to bfloat16, with the keys of LANES slots, `stride` bytes apart, of which
`count` are there; LANES slots from `ahead` on are fetched meanwhile. */
INLINE vec scores_of(const float *query, const words *pairs, const char *key, const char *ahead, int64_t stride,
                     int64_t count, int64_t size, const int half) {
    vec sums[LANES];
#pragma GCC unroll 16
    for (int n = 0; n < LANES; n++) {
        int64_t i = 0;
        sums[n] = (vec){0};
        if (half)
            for (; i + 2 * LANES <= size; i += 2 * LANES) {
                __builtin_prefetch(ahead + i * 2, 0, 2);
                sums[n] = add_pairs(sums[n], pairs[i / (2 * LANES)], *(const words *)(key + i * 2));
            }
        for (; i + LANES <= size; i += LANES) {
            __builtin_prefetch(ahead + i * (half ? 2 : 4), 0, 2);
            sums[n] += *(vec *)(query + i) * cached(key, i, half);
        }
        for (; i < size; i++) sums[n][0] += query[i] * cached_one(key, i, half);
        key += n + 1 < count ? stride : 0;
        ahead += stride;
    }
    return sums_of(sums);
}

/* out += the sum of the values of LANES slots, `stride` bytes apart, by their weights, which are 0 beyond `count`;
LANES slots from `ahead` on are fetched meanwhile. */
INLINE void accumulate(const float *weights, const char *value, const char *ahead, int64_t stride, int64_t count,
                       int64_t size, float *out, const int half) {
    int64_t i = 0;
    if (half)
        for (; i + 2 * LANES <= size; i += 2 * LANES) {
            vec even = {0}, odd = {0};
            const char *at = value + i * 2;
#pragma GCC unroll 16
            for (int n = 0; n < LANES; n++) {
                __builtin_prefetch(ahead + n * stride + i * 2, 0, 2);
                even += weights[n] * (vec)(*(const words *)at << 16);
                odd += weights[n] * (vec)(*(const words *)at & 0xFFFF0000u);
                at += n + 1 < count ? stride : 0;
            }
            *(vec *)(out + i) += SHUFFLE(even, odd, EACH(FIRST_IN_TURNS, 2));
            *(vec *)(out + i + LANES) += SHUFFLE(even, odd, EACH(LAST_IN_TURNS, 2));
        }
    for (; i + LANES <= size; i += LANES) {
        vec sum = *(vec *)(out + i);
        const char *at = value;
#pragma GCC unroll 16
        for (int n = 0; n < LANES; n++) {
            __builtin_prefetch(ahead + n * stride + i * (half ? 2 : 4), 0, 2);
            sum += weights[n] * cached(at, i, half);
            at += n + 1 < count ? stride : 0;
        }
        *(vec *)(out + i) = sum;
    }
    for (; i < size; i++)
        for (int64_t n = 0; n < LANES && n < count; n++) out[i] += weights[n] * cached_one(value + n * stride, i, half);
}

/* A row's new queries, and where attention to the slots [from, to) of its KV cache goes. */
typedef struct {
    const float *query;
    const uint16_t *pairs; /* the same in bfloat16, where the cache is */
    const char *key, *value, *next; /* next: keys that are attended to afterwards */
    int64_t from, to, room;
    float *scores, *out; /* scores (heads, room) is scratch */
} Row;

/* Attention of the query heads of key-value heads [first, last): out = softmax(query · keys · scale) · values. Slots are
read LANES at a time, all heads of some before the next, as they lie in memory. */
INLINE void attend_to(const Block *block, const Row *row, int64_t first, int64_t last, int64_t size, const int half) {
    int64_t group = block->heads / block->kv_heads, begin = first * group, end = last * group; /* query heads */
    int64_t head = size * (half ? 2 : 4), stride = block->kv_heads * head;
    float scale = block->scale;
    for (int64_t j = row->from; j < row->to; j += LANES) {
        const char *ahead = j + LANES < row->to ? row->key + (j + LANES) * stride : row->value + row->from * stride;
        for (int64_t h = begin; h < end; h++) {
            int64_t at = h / group * head;
            vec scores = scores_of(row->query + h * size, (const words *)(row->pairs + h * size),
                                   row->key + j * stride + at, ahead + at, stride, row->to - j, size, half);
            *(vec *)(row->scores + h * row->room + j - row->from) = scores * scale;
        }
    }
    for (int64_t h = begin; h < end; h++) softmax(row->scores + h * row->room, row->to - row->from);
    memset(row->out + begin * size, 0, (end - begin) * size * sizeof(float));
    for (int64_t j = row->from; j < row->to; j += LANES) {
        const char *ahead = j + LANES < row->to ? row->value + (j + LANES) * stride : row->next;
        for (int64_t h = begin; h < end; h++) {
            int64_t at = h / group * head;
            const float *weights = row->scores + h * row->room + j - row->from;
            accumulate(weights, row->value + j * stride + at, ahead + at, stride, row->to - j, size,
                       row->out + h * size, half);
        }
    }
}

static void attend(const Block *block, const Row *row, int64_t first, int64_t last, int64_t half) {
    int64_t size = block->size; /* loops of the usual one are unrolled */
    if (half)
        size == 64 ? attend_to(block, row, first, last, 64, 1) : attend_to(block, row, first, last, size, 1);
    else
        size == 64 ? attend_to(block, row, first, last, 64, 0) : attend_to(block, row, first, last, size, 0);
}

static void write_slot(char *cache, int64_t slot, const float *x, int64_t count, int64_t half) {
    if (half)
        round_to((uint16_t *)cache + slot * count, x, count);
    else
        memcpy(cache + slot * count * 4, x, count * 4);
}

/* The KV cache of one layer. Keys and values of a row, (slots + 1, kv_heads, size), begin `row_stride` numbers apart. */
typedef struct {
    char *key, *value;
    int64_t row_stride, slots, half; /* half: bfloat16, else float */
} Cache;

/* The self-attention sublayer of one new token of each row: x (rows, width) to y, which may be x. `length` (rows,)
counts the tokens of a row. A new token that is not counted, or finds no slot, goes to the last, which is never read. */
int64_t attention_sublayer(const Block *block, const float *x, int64_t rows, const int64_t *positions,
                           const int64_t *length, const Cache *cache, float *y, int64_t threads) {
    int64_t width = block->output.outputs, size = block->size, heads = block->heads, kv_heads = block->kv_heads;
    int64_t projected = block->query_key_value.outputs, stride = kv_heads * size, slots = cache->slots;
    int64_t inner = heads * size, room = slots + 2 * LANES, apart = cache->row_stride * (cache->half ? 2 : 4);
    float *scratch = malloc(sizeof(float) * rows * (width + projected + 2 * inner + heads * room));
    if (!scratch) return OUT_OF_MEMORY;
    float *normal = scratch, *qkv = normal + rows * width, *attended = qkv + rows * projected;
    float *scores = attended + rows * inner;
    uint16_t *pairs = (uint16_t *)(scores + rows * heads * room);
    const float *input = block->pre ? normalized(&block->attention_norm, x, rows, width, normal) : x;
    int64_t failed = linear(&block->query_key_value, input, rows, NO_ACTIVATION, NULL, NULL, qkv, threads);
    if (failed) rows = 0; /* nothing is written */
    for (int64_t r = 0; r < rows; r++) {
        float *query = qkv + r * projected, *new_key = query + inner, *new_value = new_key + stride;
        int64_t position = positions[r], slot = position < slots && position < length[r] ? position : slots;
        for (int64_t h = 0; h < heads + kv_heads; h++) {
            float *head = query + h * size;
            const Norm *norm = h < heads ? &block->query_norm : &block->key_norm;
            if (norm->kind != NO_NORM) normalize(norm, head, size, head);
            if (block->cos) rotate(block, head, position);
        }
        if (cache->half) round_to(pairs + r * inner, query, inner);
        write_slot(cache->key + r * apart, slot, new_key, stride, cache->half);
        write_slot(cache->value + r * apart, slot, new_value, stride, cache->half);
    }
    int64_t parts = rows < threads && threads <= kv_heads ? threads : 1; /* heads are shared out where rows are few */
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * slots * inner > PARALLEL)
    for (int64_t n = 0; n < rows * parts; n++) {
        int64_t r = n / parts, part = n % parts, to = length[r] < slots ? length[r] : slots;
        int64_t from = block->window && to > block->window ? to - block->window : 0;
        int64_t first = kv_heads * part / parts, last = kv_heads * (part + 1) / parts;
        const char *key = cache->key + r * apart, *value = cache->value + r * apart;
        const char *next = r + 1 < rows ? key + apart : (const char *)block->output.panels;
        Row row = {qkv + r * projected, pairs + r * inner,          key,                 value, next, from, to, room,
                   scores + r * heads * room, attended + r * inner};
        attend(block, &row, first, last, cache->half);
    }
    failed |= linear(&block->output, attended, rows, NO_ACTIVATION, NULL, block->residual ? x : NULL, y, threads);
    if (!block->pre) normalized(&block->attention_norm, y, rows, width, y);
    free(scratch);
    return failed;
}

/* The feed-forward sublayer: x (rows, width) to y, which may be x. */
int64_t feed_forward_sublayer(const Block *block, const float *x, int64_t rows, float *y, int64_t threads) {
    int64_t width = block->down.outputs, inner = block->up.outputs;
    float *scratch = malloc(sizeof(float) * rows * (width + 2 * inner));
    if (!scratch) return OUT_OF_MEMORY;
    float *hidden = scratch + rows * width, *gate = hidden + rows * inner;
    const float *input = block->pre ? normalized(&block->feed_forward_norm, x, rows, width, scratch) : x;
    int64_t failed = 0, gated = block->gate.panels != NULL;
    if (gated) failed = linear(&block->gate, input, rows, SILU, NULL, NULL, gate, threads);
    failed |= linear(&block->up, input, rows, block->activation, gated ? gate : NULL, NULL, hidden, threads);
    failed |= linear(&block->down, hidden, rows, NO_ACTIVATION, NULL, block->residual ? x : NULL, y, threads);
    if (!block->pre) normalized(&block->feed_forward_norm, y, rows, width, y);
    free(scratch);
    return failed;
}

typedef struct {
    const Block *blocks;
    int64_t layers, width, context;
    const float *table; /* of positions (context, width), or null */
    double scale;       /* of embeddings */
    Norm norm;          /* after the last block */
} Stack;

/* Embeddings x (rows, width) of one new token of each row through a stack, in place; the caches of layers begin
`layer_stride` numbers apart. */
int64_t run_stack(const Stack *stack, float *x, int64_t rows, const int64_t *positions, const int64_t *length,
                  const Cache *first, int64_t layer_stride, int64_t threads) {
    int64_t width = stack->width, apart = layer_stride * (first->half ? 2 : 4);
    int64_t *within = malloc(sizeof(int64_t) * rows); /* only rows that nobody reads any more lie beyond the context */
    if (!within) return OUT_OF_MEMORY;
    int64_t failed = 0;
    for (int64_t r = 0; r < rows; r++) {
        within[r] = positions[r] < stack->context ? positions[r] : stack->context - 1;
        float *row = x + r * width;
        const float *table = stack->table + within[r] * width;
        if (stack->table)
            for (int64_t i = 0; i < width; i++) row[i] = row[i] * (float)stack->scale + table[i];
    }
    for (int64_t layer = 0; layer < stack->layers && !failed; layer++) {
        Cache cache = *first;
        cache.key += layer * apart;
        cache.value += layer * apart;
        failed = attention_sublayer(stack->blocks + layer, x, rows, within, length, &cache, x, threads);
        failed |= feed_forward_sublayer(stack->blocks + layer, x, rows, x, threads);
    }
    normalized(&stack->norm, x, rows, width, x);
    free(within);
    return failed;
}

/* y (rows, outputs) = log-softmax(x (rows, inputs) · weightᵀ + bias) */
int64_t log_probs(const Linear *layer, const float *x, int64_t rows, float *y, int64_t threads) {
    int64_t outputs = layer->outputs, whole = outputs - outputs % LANES;
    if (linear(layer, x, rows, NO_ACTIVATION, NULL, NULL, y, threads)) return OUT_OF_MEMORY;
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * outputs > PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        float *row = y + r * outputs, greatest = greatest_of(row, outputs), sum = 0;
        vec sums = {0};
        for (int64_t i = 0; i < whole; i += LANES) sums += exp_of(*(vec *)(row + i) - greatest);
        for (int64_t i = whole; i < outputs; i++) sum += expf(row[i] - greatest);
        float log_total = logf(sum + sum_of(sums)); /* taken off last, as in softmax_loss.c */
        for (int64_t i = 0; i < outputs; i++) row[i] = (row[i] - greatest) - log_total;
    }
    return 0;
}
