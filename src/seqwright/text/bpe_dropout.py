"""BPE dropout: words cut as byte pair encoding would if it overlooked some merges (Provilkov et al. 2020).

Their Algorithm 1, for all words at once: of the merges that could be made, each place is overlooked with probability p;
the best that is left is made, until none is left. p = 0 is the plain cut, p = 1 leaves characters.
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

Small = NDArray[np.int32]
NONE = np.iinfo(np.int32).max
"""The rank of a pair that is never merged."""


class Dropout:
    """Other cuts of some words, each drawn several times."""

    def __init__(self, words: Ragged, times: Ints, tokenizer: Tokenizer, share: float):
        self.merges, self.share = Merges(tokenizer), share
        spelled = self.merges.spelling.take(words.ids)
        ends = np.concatenate([[0], np.cumsum(spelled.lengths)])[np.concatenate([[0], np.cumsum(words.lengths)])]
        symbols = Ragged(spelled.ids, np.diff(ends)).take(np.repeat(np.arange(len(times)), times))
        self.count = len(symbols.lengths)
        self.groups: list[tuple[Ints, Small, Small]] = []
        """Words of one length are a matrix: their rows (R,), symbols (R, L) and the ranks of their pairs (R, L - 1)."""
        for length in np.unique(symbols.lengths):
            rows = np.flatnonzero(symbols.lengths == length)
            matrix = symbols.ids[symbols.starts[rows, None] + np.arange(length)].astype(np.int32)
            self.groups.append((rows, matrix, self.merges.ranks(matrix[:, :-1], matrix[:, 1:])))

    def draw(self, bits: PCG64) -> Ragged:
        """The words of each time, the times of a word side by side."""
        return Ragged.of(chain.from_iterable(self._cut(*group, bits) for group in self.groups), self.count)

    def _cut(self, rows: Ints, symbols: Small, ranks: Small, bits: PCG64) -> Iterator[tuple[Ints, Small]]:
        """Rows of a group and what became of them, as they are done."""
        while ranks.size:
            overlooked = (bits.random_raw(ranks.size) >> np.uint64(11)) * 2.0**-53 < self.share
            seen = np.where(overlooked.reshape(ranks.shape), np.int32(NONE), ranks)
            best = seen.argmin(1)
            rank = seen[np.arange(len(seen)), best]
            done = rank == NONE
            yield rows[done], symbols[done]
            going = ~done
            rows, best = rows[going], best[going]
            symbols, ranks = self.merges.merge(symbols[going], ranks[going], best, rank[going])
        yield rows, symbols


class Merges:
    """The merges of a tokenizer in ids."""

    def __init__(self, tokenizer: Tokenizer):
        model = json.loads(tokenizer.json)["model"]
        prefix = model.get("continuing_subword_prefix") or ""
        parts: dict[int, tuple[int, int]] = {}
        keys, made = [], []
        for merge in model["merges"]:  # older files write a pair as one string
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            pair = model["vocab"][left], model["vocab"][right]
            made.append(model["vocab"][left + right.removeprefix(prefix)])
            parts.setdefault(made[-1], pair)
            keys.append(pair[0] * tokenizer.size + pair[1])
        self.size, self.made = tokenizer.size, np.array(made, np.int32)
        order = np.argsort(np.array(keys, np.int64))
        self.keys = np.append(np.array(keys, np.int64)[order], np.iinfo(np.int64).max)  # one that nothing is beyond
        self.order = np.append(order, NONE).astype(np.int32)

        @functools.cache
        def spelled(id: int) -> tuple[int, ...]:
            return spelled(parts[id][0]) + spelled(parts[id][1]) if id in parts else (id,)

        spellings = [spelled(id) for id in range(tokenizer.size)]
        self.spelling = Ragged(
            np.array([symbol for own in spellings for symbol in own], np.int64), np.array([*map(len, spellings)])
        )
        """The characters of each id, or bytes: what no merge has made."""

    def ranks(self, left: Small, right: Small) -> Small:
        """How early each pair is merged; NONE where it never is."""
        keys = left.astype(np.int64) * self.size + right
        place = np.searchsorted(self.keys, keys)
        return np.where(self.keys[place] == keys, self.order[place], np.int32(NONE))

    def merge(self, symbols: Small, ranks: Small, best: Ints, rank: Small) -> tuple[Small, Small]:
        """Each row (R, L) with the pair at `best` as one symbol, and the ranks of its pairs."""
        every, inside = np.arange(len(symbols)), np.arange(symbols.shape[1] - 1)
        symbols = np.where(inside <= best[:, None], symbols[:, :-1], symbols[:, 1:])
        symbols[every, best] = self.made[rank]
        ranks = np.where(inside[:-1] < best[:, None], ranks[:, :-1], ranks[:, 1:])
        for place in (best - 1, best):  # the new symbol has new neighbors
            some = np.flatnonzero((place >= 0) & (place < ranks.shape[1]))
            at = place[some]
            ranks[some, at] = self.ranks(symbols[some, at], symbols[some, at + 1])
        return symbols, ranks
