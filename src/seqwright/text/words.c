/* Ids of all words of a text, by the hash table of word_table.py: the same words, slots and ids, in one pass. */

#include <stdint.h>
#include <string.h>

#define MAX_BYTES 15

typedef struct {
    const uint64_t *low, *high; /* (entries,) the bytes of each word, and its length in the last one */
    const int32_t *slots;       /* (2^bits,) entries; `none` where a slot is free */
    const void *id;             /* (entries,) of `id_size` bytes */
    const uint8_t *is_space;    /* (256,) */
    int64_t bits, none, id_size;
    uint64_t multipliers[2];
} Table;

static uint64_t bytes_of(const uint8_t *data, int64_t count) {
    uint64_t value;
    memcpy(&value, data, sizeof value); /* little-endian, as in the table; there are bytes to read after every word */
    return count >= 8 ? value : value & ((UINT64_C(1) << 8 * count) - 1);
}

/* Writes the ids of the words of texts, which end at `ends` and are one byte apart, the number of words of each text,
and of words longer than MAX_BYTES the number, beginning and end; returns the number of words and of long words. */
void encode_words(const Table *table, const uint8_t *data, const int64_t *ends, int64_t texts, uint8_t *ids,
                  int64_t *counts, int64_t *longs, int64_t *totals) {
    int64_t words = 0, at = 0, mask = (INT64_C(1) << table->bits) - 1;
    totals[1] = 0;
    for (int64_t text = 0; text < texts; text++) {
        int64_t before = words;
        while (1) {
            while (at < ends[text] && table->is_space[data[at]]) at++;
            if (at >= ends[text]) break;
            int64_t start = at;
            while (at < ends[text] && !table->is_space[data[at]]) at++;
            int64_t length = at - start, entry = table->none;
            if (length > MAX_BYTES) {
                int64_t *line = longs + 3 * totals[1]++;
                line[0] = words, line[1] = start, line[2] = at;
            } else {
                uint64_t low = bytes_of(data + start, length), high = (uint64_t)length << 56;
                if (length > 8) high |= bytes_of(data + start + 8, length - 8);
                uint64_t mixed = (low ^ high * table->multipliers[1]) * table->multipliers[0];
                int64_t slot = mixed >> (64 - table->bits);
                while ((entry = table->slots[slot]) != table->none &&
                       (table->low[entry] != low || table->high[entry] != high))
                    slot = (slot + 1) & mask;
            }
            memcpy(ids + words++ * table->id_size, (const uint8_t *)table->id + entry * table->id_size, table->id_size);
        }
        counts[text] = words - before;
        at = ends[text] + 1;
    }
    totals[0] = words;
}
