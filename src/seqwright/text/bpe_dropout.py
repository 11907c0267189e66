"""BPE dropout: segmentations of words in which random merges are dropped (Provilkov et al. 2020).

Algorithm 1 of the paper, for all words at once: at each step every applicable merge is dropped with probability p and
the best of the others is applied, until none is left. p = 0 is deterministic BPE, p = 1 leaves characters or bytes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.random import PCG64
from numpy.typing import NDArray

from seqwright.text.ragged import Ints, Ragged
from seqwright.text.tokenizer import Tokenizer

Int32s = NDArray[np.int32]
NO_MERGE = np.iinfo(np.int32).max
"""Rank of a pair without a merge."""


class BPEDropout:
    """Sampler of segmentations: `repeats[n]` independent draws of word n."""

    def __init__(self, words: Ragged, repeats: Ints, tokenizer: Tokenizer, dropout: float):
        self.merges, self.dropout = Merges(tokenizer), dropout
        base = self.merges.base_symbols.take(words.ids)
        ends = np.concatenate([[0], np.cumsum(base.lengths)])[np.concatenate([[0], np.cumsum(words.lengths)])]
        symbols = Ragged(base.ids, np.diff(ends)).take(np.repeat(np.arange(len(repeats)), repeats))
        self.count = len(symbols.lengths)
        self.groups: list[tuple[Ints, Int32s, Int32s]] = []
        """Words of one length as a matrix: row numbers (R,), symbols (R, L) and the ranks of their pairs (R, L - 1)."""
        for length in np.unique(symbols.lengths):
            rows = np.flatnonzero(symbols.lengths == length)
            matrix = symbols.ids[symbols.starts[rows, None] + np.arange(length)].astype(np.int32)
            self.groups.append((rows, matrix, self.merges.ranks(matrix[:, :-1], matrix[:, 1:])))

    def draw(self, bits: PCG64) -> Ragged:
        """One segmentation per draw, the draws of a word next to each other."""
        return Ragged.from_groups(chain.from_iterable(self._segment(*group, bits) for group in self.groups), self.count)

    def _segment(self, rows: Ints, symbols: Int32s, ranks: Int32s, bits: PCG64) -> Iterator[tuple[Ints, Int32s]]:
        """Row numbers and final symbols of a group's words, as they finish."""
        while ranks.size:
            # Raw bits, as for all randomness of data order: a resumed run draws the same segmentations (decision 0060).
            dropped = (bits.random_raw(ranks.size) >> np.uint64(11)) * 2.0**-53 < self.dropout
            kept = np.where(dropped.reshape(ranks.shape), np.int32(NO_MERGE), ranks)
            best = kept.argmin(1)
            rank = kept[np.arange(len(kept)), best]
            done = rank == NO_MERGE
            yield rows[done], symbols[done]
            active = ~done
            rows, best = rows[active], best[active]
            symbols, ranks = self.merges.merge(symbols[active], ranks[active], best, rank[active])
        yield rows, symbols


class Merges:
    """Merge table of a tokenizer in ids: pair ranks by binary search."""

    def __init__(self, tokenizer: Tokenizer):
        model = json.loads(tokenizer.json)["model"]
        prefix = model.get("continuing_subword_prefix") or ""
        parts: dict[int, tuple[int, int]] = {}
        keys, merged = [], []
        for merge in model["merges"]:  # older files write a pair as one string
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            pair = model["vocab"][left], model["vocab"][right]
            merged.append(model["vocab"][left + right.removeprefix(prefix)])
            parts.setdefault(merged[-1], pair)
            keys.append(pair[0] * tokenizer.size + pair[1])
        self.size, self.merged = tokenizer.size, np.array(merged, np.int32)
        order = np.argsort(np.array(keys, np.int64))
        # The sentinel keeps the index that searchsorted returns within bounds.
        self.keys = np.append(np.array(keys, np.int64)[order], np.iinfo(np.int64).max)
        self.order = np.append(order, NO_MERGE).astype(np.int32)

        @functools.cache
        def base(id: int) -> tuple[int, ...]:
            return base(parts[id][0]) + base(parts[id][1]) if id in parts else (id,)

        bases = [base(id) for id in range(tokenizer.size)]
        self.base_symbols = Ragged(
            np.array([symbol for symbols in bases for symbol in symbols], np.int64), np.array([*map(len, bases)])
        )
        """Each id split into the base symbols (characters or bytes) that no merge makes."""

    def ranks(self, left: Int32s, right: Int32s) -> Int32s:
        """Priority of each pair, 0 first; NO_MERGE for a pair without a merge."""
        keys = left.astype(np.int64) * self.size + right
        index = np.searchsorted(self.keys, keys)
        return np.where(self.keys[index] == keys, self.order[index], np.int32(NO_MERGE))

    def merge(self, symbols: Int32s, ranks: Int32s, best: Ints, rank: Int32s) -> tuple[Int32s, Int32s]:
        """Rows (R, L - 1) with the pair at `best` merged into one symbol, and the updated pair ranks (R, L - 2)."""
        rows, columns = np.arange(len(symbols)), np.arange(symbols.shape[1] - 1)
        symbols = np.where(columns <= best[:, None], symbols[:, :-1], symbols[:, 1:])
        symbols[rows, best] = self.merged[rank]
        ranks = np.where(columns[:-1] < best[:, None], ranks[:, :-1], ranks[:, 1:])
        for position in (best - 1, best):  # only the pairs on either side of the new symbol have changed
            valid = np.flatnonzero((position >= 0) & (position < ranks.shape[1]))
            at = position[valid]
            ranks[valid, at] = self.ranks(symbols[valid, at], symbols[valid, at + 1])
        return symbols, ranks
