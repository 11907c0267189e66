/* Log-probabilities of running text under back-off n-gram tables, order by order (decision 192).

The rows of one order depend only on those of the order below one position earlier, so that an order is a list of
independent lookups, which wait for memory GROUP at a time, not one by one. Sums are the float32 additions of the
tables' own queries, so results are equal bit for bit. */

#include <stdint.h>

#define GROUP 64

typedef struct {
    const int64_t *key;      /* (rows,) sorted: row of the prefix · vocabulary + last id */
    const float *log_prob;   /* (rows,) */
    const float *back_off;   /* (rows,) of contexts; null at the highest order */
    const int64_t *first;    /* (rows of the order below + 1,) first row of each prefix; null: search all rows */
    int64_t rows;
} Level;

/* The first row of each prefix, of `prefixes`, and the number of rows after the last. */
void first_rows(const int64_t *key, int64_t rows, int64_t prefixes, int64_t vocabulary, int64_t *first) {
    int64_t row = 0;
    for (int64_t prefix = 0; prefix <= prefixes; prefix++) {
        while (row < rows && key[row] < prefix * vocabulary) row++;
        first[prefix] = row;
    }
}

/* One order: log p of the ids at `count` positions whose contexts are rows of the order below. Positions and contexts
become those of the next order, which are the n-grams found here; their number is returned. */
static int64_t advance(const Level *below, const Level *level, const int64_t *ids, int64_t length, int64_t vocabulary,
                       int64_t *position, int64_t *context, int64_t count, float *value) {
    int64_t found = 0;
    for (int64_t start = 0; start < count; start += GROUP) {
        int queries = count - start < GROUP ? count - start : GROUP, searching = 0;
        int64_t from[GROUP], size[GROUP], key[GROUP], unfinished[GROUP];
        const int64_t *at = position + start, *row = context + start;
        for (int n = 0; n < queries; n++) {
            if (level->first) __builtin_prefetch(level->first + row[n]);
            __builtin_prefetch(below->back_off + row[n]);
        }
        for (int n = 0; n < queries; n++) {
            key[n] = row[n] * vocabulary + ids[at[n]];
            from[n] = level->first ? level->first[row[n]] : 0;
            size[n] = level->first ? level->first[row[n] + 1] - from[n] : level->rows;
            __builtin_prefetch(level->key + from[n] + size[n] / 2);
            unfinished[searching] = n;
            searching += size[n] > 1;
        }
        while (searching) { /* a step of binary search for each, then the next: they wait for memory together */
            int left = 0;
            for (int i = 0; i < searching; i++) {
                int n = unfinished[i];
                int64_t half = size[n] / 2;
                from[n] += level->key[from[n] + half] <= key[n] ? half : 0;
                size[n] -= half;
                __builtin_prefetch(level->key + from[n] + size[n] / 2);
                unfinished[left] = n;
                left += size[n] > 1;
            }
            searching = left;
        }
        for (int n = 0; n < queries; n++) {
            if (size[n] && level->key[from[n]] == key[n]) __builtin_prefetch(level->log_prob + from[n]);
            else size[n] = 0;
        }
        for (int n = 0; n < queries; n++) {
            int64_t here = at[n];
            value[here] = size[n] ? level->log_prob[from[n]] : value[here] + below->back_off[row[n]];
            if (size[n] && here + 1 < length) {
                position[found] = here + 1;
                context[found++] = from[n];
            }
        }
    }
    return found;
}

/* log p of ids (rows, length + 1) but the first of each row, after the ids before it in the row: values (rows, length).
scratch (2, length) holds positions and contexts. */
void score_text(const Level *levels, int64_t order, int64_t vocabulary, const int64_t *ids, int64_t rows,
                int64_t length, int64_t *scratch, float *values) {
    int64_t *position = scratch, *context = scratch + length;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t *text = ids + r * (length + 1), *target = text + 1;
        float *value = values + r * length;
        for (int64_t t = 0; t < length; t++) {
            position[t] = t;
            context[t] = text[t];
            value[t] = levels[0].log_prob[target[t]];
        }
        int64_t count = length;
        for (int64_t m = 1; m < order; m++)
            count = advance(levels + m - 1, levels + m, target, length, vocabulary, position, context, count, value);
    }
}
