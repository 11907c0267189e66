"""Suffix arrays of token ids (Manber & Myers 1993): sorted by prefix doubling, searched for longest matches.

Both are vectorized: all ties of a doubling round are sorted at once (Larsson & Sadakane 2007), and all positions of a
query are searched at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]
CHUNK = 4
"""Ids that are compared at first, since most pairs differ soon; twice as many in each further round."""
MAX_CHUNK = 1 << 16


def suffix_array(ids: Ints) -> NDArray[np.uint32]:
    """The starts of all suffixes of ids (N,), in lexicographic order; a proper prefix comes first."""
    count = len(ids)
    assert count < 1 << 32
    keys, depth = _packed(ids)
    order = np.argsort(keys).astype(np.uint32)
    rank = np.empty(count, np.int64)
    rank[order], ties = _ranks(keys[order], np.arange(count))
    del keys
    while len(ties):
        # Suffixes that agree in their first `depth` ids are sorted by the ranks of what follows, for twice the depth.
        starts = order[ties].astype(np.int64)
        following = np.zeros(len(starts), np.int64)
        inside = starts + depth < count
        following[inside] = rank[starts[inside] + depth] + 1
        pairs = rank[starts] * (count + 1) + following
        by_pair = np.argsort(pairs)
        order[ties] = starts[by_pair]
        # A tie group has the slots from its rank on, so that sorted pairs stay within their groups.
        rank[order[ties]], ties = _ranks(pairs[by_pair], ties)
        depth *= 2
    return order


def _packed(ids: Ints) -> tuple[NDArray[np.int64], int]:
    """The first ids of every suffix as one number, in the same order, and how many they are; nothing is 0."""
    bits = max(1, int(ids.max(initial=0)) + 1).bit_length()
    depth = max(1, 63 // bits)
    keys = np.zeros(len(ids), np.int64)
    for n in range(min(depth, len(ids))):
        keys[: len(ids) - n] |= (ids[n:].astype(np.int64) + 1) << (bits * (depth - 1 - n))
    return keys, depth


def _ranks(keys: NDArray[np.int64], slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each of the sorted keys the first slot with the same key, and the slots that share theirs."""
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    last = np.append(new[1:], True)
    first = slots[np.maximum.accumulate(np.where(new, np.arange(len(keys)), 0))]
    return first, slots[~(new & last)]


def common_prefixes(text: Ints, at: Ints, query: Ints, starts: Ints, limit: int) -> NDArray[np.int64]:
    """Lengths, up to `limit`, of the longest common prefixes of text[at:] and query[starts:], pair by pair."""
    room = np.minimum(np.minimum(len(text) - at.astype(np.int64), len(query) - starts), limit)
    lengths = np.zeros(len(at), np.int64)
    active = np.flatnonzero(room > 0)
    chunk = CHUNK
    while len(active):
        offsets = np.arange(chunk)
        here = lengths[active]
        within = offsets < (room[active] - here)[:, None]
        left = np.minimum(at[active].astype(np.int64)[:, None] + here[:, None] + offsets, len(text) - 1)
        right = np.minimum(starts[active][:, None] + here[:, None] + offsets, len(query) - 1)
        equal = (text[left] == query[right]) & within
        whole = equal.all(1)
        lengths[active] += np.where(whole, chunk, equal.argmin(1))
        active = active[whole & (lengths[active] < room[active])]
        chunk = min(MAX_CHUNK, 2 * chunk) if len(active) * chunk < MAX_CHUNK else chunk
    return lengths


def longest_matches(
    text: Ints, suffixes: Ints, query: Ints, starts: Ints, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths, up to `limit`, of the longest prefixes of query[starts:] that occur in a text, and where they do.

    The text's suffixes before and after a query in the order of the suffix array have the longest common prefixes with
    it. As the search narrows both sides, what both share with the query is not compared again (Manber & Myers 1993).
    """
    low = np.full(len(starts), -1, np.int64)
    high = np.full(len(starts), len(suffixes), np.int64)
    low_lengths, high_lengths = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    for _ in range(len(suffixes).bit_length()):
        active = np.flatnonzero(high - low > 1)
        middle = (low[active] + high[active]) // 2
        at = suffixes[middle].astype(np.int64)
        known = np.minimum(low_lengths[active], high_lengths[active])
        rest = common_prefixes(text, at + known, query, starts[active] + known, limit)
        length = np.minimum(known + rest, limit)
        smaller = _precedes(text, at + length, query, starts[active] + length)
        low[active[smaller]], low_lengths[active[smaller]] = middle[smaller], length[smaller]
        high[active[~smaller]], high_lengths[active[~smaller]] = middle[~smaller], length[~smaller]
    lengths = np.maximum(low_lengths, high_lengths)
    best = np.where(low_lengths >= high_lengths, low, high)
    return lengths, suffixes[best.clip(0, len(suffixes) - 1)].astype(np.int64)


def _precedes(text: Ints, at: Ints, query: Ints, starts: Ints) -> NDArray[np.bool_]:
    """Whether the text is smaller than the query at the first ids in which they differ; the end is smallest."""
    ended, query_ended = at >= len(text), starts >= len(query)
    smaller = text[np.minimum(at, len(text) - 1)] < query[np.minimum(starts, len(query) - 1)]
    return ~query_ended & (ended | smaller)
