"""Log-probabilities of running text: its n-grams sorted once, and looked up in that order at every level.

Sorted by their first ids, the n-grams that start at each position query every table from its beginning to its end,
which the cache likes, and repeated n-grams are neighbors, so that each is looked up and backed off once (decision 158).
"""

from __future__ import annotations

import numpy as np

from seqwright.core.batch import IGNORE
from seqwright.models.ngram.counting import Ints, Mask
from seqwright.models.ngram.native_queries import NativeQueries, functions
from seqwright.models.ngram.scratch import differs_from_previous, sort_with_index
from seqwright.models.ngram.smoothing import LogProbs
from seqwright.models.ngram.tables import ABSENT, Tables, sorted_search

np.empty(
    24 << 20, np.uint8
)  # freed at once, which raises glibc's M_MMAP_THRESHOLD: smaller arrays then cost no page faults
SORTED_IDS = 3
"""Leading ids that n-grams are sorted by: most 4-grams of a text occur in it once."""


def score(tables: Tables, input: Ints, target: Ints, before: Ints | None) -> LogProbs:
    """log p of targets (B, T) after each input, 0 where it is IGNORE; `before` are contexts (N - 1, B), or None.

    Targets that are the next input, or the last of their row, are scored as text; only others and those whose context
    began before the row are looked up by position.
    """
    scored = target != IGNORE
    text = np.concatenate([input, np.where(scored, target, 0)[:, -1:]], axis=1)
    log_probs = np.where(scored, text_log_probs(tables, text), np.float32(0))
    others = scored & (target != text[:, 1:])
    if before is not None:
        others |= scored & (np.arange(input.shape[1]) < tables.order - 1)
    if others.any():
        last = int(others.any(0).nonzero()[0][-1]) + 1  # columns after it need no contexts
        before = tables.empty_contexts(len(input)) if before is None else before
        at = others[:, :last]
        contexts = tables.advance(input[:, :last], before)[:, at]
        log_probs[:, :last][at] = tables.log_prob(contexts, target[:, :last][at])
    return log_probs


def text_log_probs(tables: Tables, ids: Ints) -> LogProbs:
    """log p of every id but the first of each row after those before it in the row: (B, T) -> (B, T - 1).

    In compiled C where this machine has a compiler, else by sorted n-grams: equal bit for bit.
    """
    if functions() is None:
        return sorted_log_probs(tables, ids)
    if tables.queries is None:
        tables.queries = NativeQueries(tables)
    log_probs: LogProbs = tables.queries.text_log_probs(ids)
    return log_probs


def sorted_log_probs(tables: Tables, ids: Ints) -> LogProbs:
    """As `text_log_probs`, by numpy: n-grams are sorted once, and each distinct one is looked up once."""
    no_id = tables.vocabulary  # ends each row, and is in no n-gram
    text = np.full(ids.size + len(ids) + tables.order, no_id)
    rows = text[: ids.size + len(ids)].reshape(len(ids), -1)  # (B, T + 1), a view
    rows[:, :-1] = ids
    log_probs = tables.levels[0].log_prob.take(text, mode="clip")
    start, is_first = _sorted_starts(text, rows.size, no_id + 1, tables.order)
    context = text.take(start)
    for m, (below, level) in enumerate(zip(tables.levels, tables.levels[1:], strict=False), 2):
        assert below.back_off is not None
        if m - 2 >= len(is_first):
            # Times V + 1, as in `_sorted_starts`: times V, (h, no_id) and (h + 1, 0) would be the same n-gram.
            key, order = sort_with_index(context * (no_id + 1) + text.take(start + (m - 1)))
            context, start = context.take(order), start.take(order)
            is_first.append(differs_from_previous(key))
        distinct = np.flatnonzero(is_first[m - 2])
        h, at = context.take(distinct), start.take(distinct)
        at += m - 1
        w = text.take(at)
        row = sorted_search(level.key, h * tables.vocabulary + w)
        row[w == no_id] = ABSENT
        value = log_probs.take(at)
        value += below.back_off.take(h, mode="clip")
        hit = np.flatnonzero(row != ABSENT)
        value[hit] = level.log_prob.take(row.take(hit))
        same = np.cumsum(is_first[m - 2], dtype=np.int32)
        same -= 1
        row = row.take(same)
        log_probs[start + (m - 1)] = value.take(same)
        known = np.flatnonzero(row != ABSENT)
        context, start = row.take(known), start.take(known)
        is_first = [flags.take(known) for flags in is_first]
    return log_probs[: rows.size].reshape(rows.shape)[:, 1:-1]


def _sorted_starts(text: Ints, size: int, base: int, order: int) -> tuple[Ints, list[Mask]]:
    """The first `size` positions, sorted by the ids there, and whether each is the first of its m-gram (m = 2, …).

    Ids and position share one 64-bit integer, in as many ids as fit: plain integers sort faster than indices.
    """
    bits = size.bit_length()
    fitting = (n for n in range(2, min(SORTED_IDS, order) + 1) if base**n << bits <= 1 << 64)
    length = max(fitting, default=1)
    ids = text.view(np.uint64)
    code = ids[:size] * np.uint64(base ** (length - 1))
    for n in range(1, length):
        code += ids[n : size + n] * np.uint64(base ** (length - 1 - n))
    code <<= np.uint64(bits)
    code |= np.arange(size, dtype=np.uint64)
    code.sort()
    start = (code & np.uint64((1 << bits) - 1)).view(np.int64)
    code >>= np.uint64(bits)
    prefixes = (code if n == length else code // np.uint64(base ** (length - n)) for n in range(2, length + 1))
    return start, [differs_from_previous(prefix) for prefix in prefixes]
