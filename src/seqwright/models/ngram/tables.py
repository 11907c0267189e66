"""Back-off n-gram tables: sorted arrays with lookup by binary search.

Whatever the smoothing, a model is a log-probability for each n-gram and a back-off weight for each context:
log p(w | h) is that of h w where the table has it, else log weight(h) + log p(w | h'), h' being h without its first id.
The arrays are used as they are in the file, so that loading is memory-mapping and processes share one copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Ints, Mask
from seqwright.models.ngram.scratch import Scratch, sort_with_index
from seqwright.models.ngram.smoothing import Estimate, LogProbs, log

ABSENT = -1
"""Row of an n-gram or context that is not in the table."""


@dataclass(frozen=True)
class Level:
    """The n-grams of one order, sorted by key = row(prefix, one level below) * V + last id."""

    key: Ints
    log_prob: LogProbs
    back_off: LogProbs | None
    """log weight(h), by row; None at the highest order, whose n-grams are never contexts."""
    count: NDArray[np.int32] | None
    """The count used by the smoothing, by row; None where counts were not stored."""

    def lookup(self, prefix: Ints, last: Ints, vocabulary: int) -> Ints:
        """Rows of the n-grams given by the row of their prefix and their last id; ABSENT where either is missing."""
        rows = np.full(prefix.size, ABSENT)
        known = np.flatnonzero(prefix != ABSENT)
        rows[known] = binary_search(self.key, prefix.take(known) * vocabulary + last.take(known))
        return rows.reshape(prefix.shape)


def binary_search(table: Ints, values: Ints) -> Ints:
    """The index of each value in a sorted table, ABSENT where it is missing."""
    if not len(values):
        return np.empty(0, np.int64)
    ordered, order = sort_with_index(values)
    index = np.empty(len(values), np.int64)
    index[order] = sorted_search(table, ordered)
    return index


def sorted_search(table: Ints, values: Ints) -> Ints:
    """`binary_search` for values in (nearly) ascending order, which access the table in order: the cache likes that."""
    if not len(table):
        return np.full(len(values), ABSENT)
    position = np.searchsorted(table, values)
    position[table.take(position, mode="clip") != values] = ABSENT
    return position


class Tables:
    """All orders of a back-off model, and their queries.

    A context is N - 1 rows: the m-th is the row of the last m ids as an m-gram, or ABSENT. Arrays of contexts have that
    axis first, so that each level works on one contiguous block.
    """

    def __init__(self, levels: list[Level], vocabulary: int):
        self.levels = levels
        self.vocabulary = vocabulary
        self.queries: Any = None
        """Compiled queries of these tables, once text was scored where they can be compiled."""

    @property
    def order(self) -> int:
        return len(self.levels)

    def empty_contexts(self, rows: int) -> Ints:
        """The contexts (N - 1, B) of rows before any id."""
        return np.full((self.order - 1, rows), ABSENT)

    def advance(self, ids: Ints, before: Ints) -> Ints:
        """The contexts after each of the ids: (B, T), (N - 1, B) -> (N - 1, B, T)."""
        after = np.empty((self.order - 1, *ids.shape), np.int64)
        after[:1] = ids
        for m in range(1, self.order - 1):
            shorter = np.concatenate([before[m - 1, :, None], after[m - 1, :, :-1]], axis=1)  # (B, T)
            after[m] = self.levels[m].lookup(shorter, ids, self.vocabulary)
        return after

    def log_prob(self, contexts: Ints, ids: Ints) -> LogProbs:
        """log p(id | context): (N - 1, …), (…) -> (…)."""
        value = self.levels[0].log_prob[ids]
        for m, level in enumerate(self.levels[1:]):
            self._back_off(m, value, contexts[m], level.lookup(contexts[m], ids, self.vocabulary))
        return value

    def distribution(self, contexts: Ints) -> LogProbs:
        """log p(every id | context): (N - 1, R) -> (R, V)."""
        value = np.repeat(self.levels[0].log_prob[None], contexts.shape[1], axis=0)  # (R, V)
        for m, level in enumerate(self.levels[1:]):
            known = np.flatnonzero(contexts[m] != ABSENT)
            value[known] += self._weights(m)[contexts[m][known], None]
            row, of = self.children(m, contexts[m])
            value[of, level.key[row] % self.vocabulary] = level.log_prob[row]
        return value

    def children(self, m: int, contexts: Ints) -> tuple[Ints, Ints]:
        """Rows of the n-grams that continue contexts of m + 1 ids (R,), and for each the index of its context in R."""
        key = self.levels[m + 1].key
        # Keys are sorted by prefix first, so that the continuations of a context are one range of rows.
        known = np.flatnonzero(contexts != ABSENT)
        first = np.searchsorted(key, contexts[known] * self.vocabulary)
        count = np.searchsorted(key, (contexts[known] + 1) * self.vocabulary) - first
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(first, count) + within, np.repeat(known, count)

    def ngram_ids(self, n: int, rows: Ints) -> Ints:
        """The ids of n-grams of length n + 1: (R,) -> (R, n + 1)."""
        columns = []
        for level in self.levels[n:0:-1]:
            rows, last = np.divmod(level.key[rows], self.vocabulary)
            columns.append(last)
        return np.stack([rows, *columns[::-1]], axis=1)

    def subset(self, kept: list[Mask]) -> Tables:
        """The tables of the kept n-grams, with rows renumbered; prefixes of kept n-grams must be kept."""
        levels: list[Level] = []
        new_row = np.arange(len(self.levels[0].key))
        for level, mask in zip(self.levels, kept, strict=True):
            key = level.key[mask]
            if levels:
                prefix, last = np.divmod(key, self.vocabulary)
                key = new_row[prefix] * self.vocabulary + last
                new_row = np.cumsum(mask) - 1
            back_off = None if level.back_off is None else level.back_off[mask]
            levels.append(
                Level(key, level.log_prob[mask], back_off, None if level.count is None else level.count[mask])
            )
        return Tables(levels, self.vocabulary)

    def _back_off(self, m: int, value: LogProbs, context: Ints, row: Ints) -> None:
        """Updates the lower-order log p to that of the n-gram where the level has it, else adds log weight(h)."""
        flat = value.reshape(-1)  # a view
        known = np.flatnonzero(context != ABSENT)  # an absent context has weight 1
        flat[known] += self._weights(m).take(context.take(known))
        present = np.flatnonzero(row != ABSENT)
        flat[present] = self.levels[m + 1].log_prob.take(row.take(present))

    def _weights(self, m: int) -> LogProbs:
        """log weight(h) of contexts of m + 1 ids, by row."""
        back_off = self.levels[m].back_off
        assert back_off is not None
        return back_off


def uniform(predictable: Mask, order: int) -> Tables:
    """The tables of an unfitted model: uniform over the predictable ids."""
    empty = np.empty(0, np.float32)
    ids = np.arange(len(predictable))
    unigrams = Level(ids, log(predictable / predictable.sum()), np.zeros(len(ids), np.float32), None)
    return Tables([unigrams, *[Level(ids[:0], empty, empty, None)] * (order - 1)], len(ids))


def assemble(counts: Counts, estimates: Estimate, kept: list[Mask] | None, scratch: Scratch) -> Tables:
    """The tables of an estimate, restricted to the kept n-grams."""
    back_offs = [*estimates.back_off, None]
    levels = [
        Level(order.key, log_prob, back_off, scratch.map(np.asarray, count, dtype=np.int32))
        for order, log_prob, back_off, count in zip(
            counts.orders, estimates.log_prob, back_offs, estimates.counts, strict=True
        )
    ]
    tables = Tables(levels, counts.vocabulary)
    return tables if kept is None else tables.subset(kept)
