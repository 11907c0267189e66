/* Softmax cross-entropy of rows of logits, float or bfloat16, and its gradient: each row is read from memory once
forward and once backward, where PyTorch's kernels pass over it some ten times, most of them in float. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "inference/vectors.h"

#define PARALLEL (1 << 16) /* logits that are worth waking other threads for */

/* LANES logits from i on */
INLINE vec logits_at(const void *row, int64_t i, const int half) {
    return half ? widened((const uint16_t *)row + i) : *(const vec *)((const float *)row + i);
}

INLINE float logit_at(const void *row, int64_t i, const int half) {
    return half ? widened_one((const uint16_t *)row + i) : ((const float *)row)[i];
}

/* Of a row: log p = (logit - greatest) - log_total, in this order, since greatest + log_total of large logits would be
rounded by more than log p is. */
typedef struct {
    float greatest, log_total;
} Normalizer;

INLINE float log_prob(const void *row, int64_t i, Normalizer by, const int half) {
    return (logit_at(row, i, half) - by.greatest) - by.log_total;
}

/* Of a row: the loss of its target, whose share is 1 - smoothing beside smoothing / count of every logit. */
INLINE float row_loss(const void *row, int64_t count, int64_t target, float smoothing, Normalizer *by, const int half) {
    int64_t whole = count - count % LANES, i;
    vec maxima = (vec){0} - INFINITY, exp_sums = {0}, sums = {0};
    float greatest = -INFINITY, exp_sum = 0, sum = 0;
    for (i = 0; i < whole; i += LANES) {
        vec x = logits_at(row, i, half);
        maxima = choose(x > maxima, x, maxima);
    }
    for (int n = 0; n < LANES; n++) greatest = maxima[n] > greatest ? maxima[n] : greatest;
    for (; i < count; i++) greatest = logit_at(row, i, half) > greatest ? logit_at(row, i, half) : greatest;
    for (i = 0; i < whole; i += LANES) {
        vec shifted = logits_at(row, i, half) - greatest;
        exp_sums += exp_of(shifted);
        sums += shifted;
    }
    for (; i < count; i++) {
        float shifted = logit_at(row, i, half) - greatest;
        exp_sum += expf(shifted);
        sum += shifted;
    }
    by->greatest = greatest;
    by->log_total = logf(exp_sum + sum_of(exp_sums));
    if (!smoothing) return -log_prob(row, target, *by, half);
    float mean = (sum + sum_of(sums)) / count - by->log_total;
    return -(1 - smoothing) * log_prob(row, target, *by, half) - smoothing * mean;
}

INLINE void row_gradient(const void *row, int64_t count, int64_t target, float smoothing, Normalizer by, float upstream,
                         void *out, const int half) {
    int64_t i = 0;
    float spread = smoothing / count, target_prob = expf(log_prob(row, target, by, half));
    for (; i + LANES <= count; i += LANES) {
        vec shifted = (logits_at(row, i, half) - by.greatest) - by.log_total;
        vec gradient = (choose(shifted < -87.0f, (vec){0}, exp_of(shifted)) - spread) * upstream;
        if (half)
            narrow((uint16_t *)out + i, gradient);
        else
            *(vec *)((float *)out + i) = gradient;
    }
    for (int64_t n = i; n <= count; n++) { /* the rest, and the target at last */
        int64_t at = n < count ? n : target;
        float gradient = (n < count ? expf(log_prob(row, n, by, half)) : target_prob - (1 - smoothing)) - spread;
        if (half)
            narrow_one((uint16_t *)out + at, gradient * upstream);
        else
            ((float *)out)[at] = gradient * upstream;
    }
}

/* loss and normalizers (rows,) of logits (rows, count); rows whose target is `ignore` have loss 0. Returns the first row
whose target is no logit, -1 where there is none: then nothing has been computed. */
int64_t softmax_loss(const void *logits, int64_t half, const int64_t *target, int64_t rows, int64_t count,
                     double smoothing, int64_t ignore, float *loss, Normalizer *normalizer, int64_t threads) {
    for (int64_t r = 0; r < rows; r++)
        if (target[r] != ignore && (target[r] < 0 || target[r] >= count)) return r;
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * count > PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        const char *row = (const char *)logits + r * count * (half ? 2 : 4);
        if (target[r] == ignore) {
            loss[r] = 0;
            continue;
        }
        loss[r] = half ? row_loss(row, count, target[r], smoothing, normalizer + r, 1)
                       : row_loss(row, count, target[r], smoothing, normalizer + r, 0);
    }
    return -1;
}

/* gradient (rows, count) of the summed loss, times `upstream` */
void softmax_gradient(const void *logits, int64_t half, const int64_t *target, int64_t rows, int64_t count,
                      double smoothing, int64_t ignore, const Normalizer *normalizer, double upstream, void *gradient,
                      int64_t threads) {
    int64_t bytes = count * (half ? 2 : 4);
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * count > PARALLEL)
    for (int64_t r = 0; r < rows; r++) {
        const char *row = (const char *)logits + r * bytes;
        char *out = (char *)gradient + r * bytes;
        if (target[r] == ignore)
            memset(out, 0, bytes);
        else if (half)
            row_gradient(row, count, target[r], smoothing, normalizer[r], upstream, out, 1);
        else
            row_gradient(row, count, target[r], smoothing, normalizer[r], upstream, out, 0);
    }
}
