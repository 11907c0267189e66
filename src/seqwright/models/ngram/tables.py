"""Tables: an n-gram model as sorted arrays, asked by binary search.

Whatever the smoothing, a model is a log-probability for each n-gram and a back-off weight for each context:
log p(w | h) is that of h w where the table has it, else weight(h) + log p(w | h'), h' being h without its first id.
The arrays are read as they lie in the file, so opening is mapping and processes share one copy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.models.ngram.counting import Counts, Mask, Rows
from seqwright.models.ngram.scratch import Scratch
from seqwright.models.ngram.smoothing import Estimate

Logs = NDArray[np.float32]

ABSENT = -1
"""The row of an n-gram that the table does not have."""


@dataclass(frozen=True)
class Level:
    """The n-grams of one length, sorted by key = row(prefix, one level below) * V + last id."""

    key: Rows
    log_prob: Logs
    back_off: Logs | None
    """log weight(h), by row; the highest level has none, for its n-grams are never contexts."""
    count: NDArray[np.int32] | None
    """The count that was read, by row, where the model keeps them."""

    def find(self, prefix: Rows, last: Rows, vocabulary: int) -> Rows:
        """Rows of the n-grams made of a context's row and an id; ABSENT where the context is or the n-gram is."""
        rows = np.full(prefix.shape, ABSENT)
        asked = prefix != ABSENT
        rows[asked] = search(self.key, prefix[asked] * vocabulary + last[asked])
        return rows


def search(table: Rows, values: Rows) -> Rows:
    """Where each value stands in a sorted table, ABSENT where it does not."""
    # Sorted questions walk through the table instead of jumping about in it: five times as fast, sort included.
    ordered, order = (t.numpy() for t in torch.sort(torch.from_numpy(values)))
    place = np.searchsorted(table, ordered)
    found = np.full(len(values), ABSENT)
    if len(table):
        there = table.take(place, mode="clip") == ordered
        found[order[there]] = place[there]
    return found


class Tables:
    """All levels of a model, and the questions asked of them.

    A context is N - 1 rows: the m-th is that of the m ids just read, or ABSENT. Arrays of contexts have that axis
    first, so that each level works on one contiguous block.
    """

    def __init__(self, levels: list[Level], vocabulary: int):
        self.levels = levels
        self.vocabulary = vocabulary

    @property
    def order(self) -> int:
        return len(self.levels)

    def nothing(self, rows: int) -> Rows:
        """The contexts (N - 1, B) of rows to which nothing was said."""
        return np.full((self.order - 1, rows), ABSENT)

    def read(self, ids: Rows, before: Rows) -> Rows:
        """The contexts after each of the ids: (B, T), (N - 1, B) -> (N - 1, B, T)."""
        after = np.empty((self.order - 1, *ids.shape), np.int64)
        after[:1] = ids
        for m in range(1, self.order - 1):
            shorter = np.concatenate([before[m - 1, :, None], after[m - 1, :, :-1]], axis=1)  # (B, T)
            after[m] = self.levels[m].find(shorter, ids, self.vocabulary)
        return after

    def log_prob(self, contexts: Rows, ids: Rows) -> Logs:
        """log p(id | context): (N - 1, …), (…) -> (…)."""
        value = self.levels[0].log_prob[ids]
        for m, level in enumerate(self.levels[1:]):
            row = level.find(contexts[m], ids, self.vocabulary)
            value = self._answer(m, value, contexts[m], row)
        return value

    def score(self, input: Rows, target: Rows, contexts: Rows) -> Logs:
        """`log_prob` of targets (B, T) in the contexts (N - 1, B, T) after each input, 0 where the target is IGNORE.

        Where the target is the next input, reading has already found its n-grams: only the highest level is asked.
        """
        taken = target != IGNORE
        read = np.zeros_like(taken)
        read[:, :-1] = target[:, :-1] == input[:, 1:]
        value = self.levels[0].log_prob[np.where(taken, target, 0)]
        for m, level in enumerate(self.levels[1:]):
            row = np.full(target.shape, ABSENT)
            if m + 2 < self.order:
                row[:, :-1] = contexts[m + 1, :, 1:]
                ask = taken & ~read
            else:
                ask = taken
            row[ask] = level.find(contexts[m][ask], target[ask], self.vocabulary)
            value = self._answer(m, value, contexts[m], row)
        return np.where(taken, value, np.float32(0))

    def distribution(self, contexts: Rows) -> Logs:
        """log p(every id | context): (N - 1, R) -> (R, V)."""
        value = np.repeat(self.levels[0].log_prob[None], contexts.shape[1], axis=0)  # (R, V)
        for m, level in enumerate(self.levels[1:]):
            value += self._weight(m, contexts[m])[:, None]
            row, of = self.children(m, contexts[m])
            value[of, level.key[row] % self.vocabulary] = level.log_prob[row]
        return value

    def children(self, m: int, contexts: Rows) -> tuple[Rows, Rows]:
        """Rows of the n-grams that continue contexts of m + 1 ids (R,), and for each the place of its context in R."""
        key = self.levels[m + 1].key
        asked = np.flatnonzero(contexts != ABSENT)
        first = np.searchsorted(key, contexts[asked] * self.vocabulary)
        many = np.searchsorted(key, (contexts[asked] + 1) * self.vocabulary) - first
        within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        return np.repeat(first, many) + within, np.repeat(asked, many)

    def words(self, n: int, rows: Rows) -> Rows:
        """The ids of n-grams of length n + 1: (R,) -> (R, n + 1)."""
        columns = []
        for level in self.levels[n:0:-1]:
            rows, last = np.divmod(level.key[rows], self.vocabulary)
            columns.append(last)
        return np.stack([rows, *columns[::-1]], axis=1)

    def take(self, kept: list[Mask]) -> Tables:
        """The tables of the n-grams that are kept, their rows renumbered; prefixes of what is kept must be."""
        levels: list[Level] = []
        number = np.arange(len(self.levels[0].key))
        for level, mask in zip(self.levels, kept, strict=True):
            key = level.key[mask]
            if levels:
                prefix, last = np.divmod(key, self.vocabulary)
                key = number[prefix] * self.vocabulary + last
                number = np.cumsum(mask) - 1
            back_off = None if level.back_off is None else level.back_off[mask]
            levels.append(
                Level(key, level.log_prob[mask], back_off, None if level.count is None else level.count[mask])
            )
        return Tables(levels, self.vocabulary)

    def _answer(self, m: int, shorter: Logs, context: Rows, row: Rows) -> Logs:
        """What a level says where it has the n-gram, else what the shorter context said, weighted."""
        value = shorter + self._weight(m, context)
        there = row != ABSENT
        value[there] = self.levels[m + 1].log_prob[row[there]]
        return value

    def _weight(self, m: int, context: Rows) -> Logs:
        """log weight of contexts of m + 1 ids; 0 where the context is absent."""
        back_off = self.levels[m].back_off
        assert back_off is not None
        weight, known = np.zeros(context.shape, np.float32), context != ABSENT
        weight[known] = back_off[context[known]]
        return weight


def uniform(predictable: Mask, order: int) -> Tables:
    """The tables of a model that has seen nothing."""
    none = np.empty(0, np.float32)
    every = np.arange(len(predictable))
    unigrams = Level(every, log(predictable / predictable.sum()), np.zeros(len(every), np.float32), None)
    return Tables([unigrams, *[Level(every[:0], none, none, None)] * (order - 1)], len(every))


def assemble(counted: Counts, found: Estimate, kept: list[Mask] | None, scratch: Scratch) -> Tables:
    """The tables of an estimate, less the n-grams that are not kept."""
    levels = []
    for n, order in enumerate(counted.orders):
        log_prob = scratch.map(log, found.probability[n], dtype=np.float32)
        back_off = scratch.map(log, found.weight[n], dtype=np.float32) if n < len(found.weight) else None
        levels.append(Level(order.key, log_prob, back_off, scratch.map(np.asarray, found.counts[n], dtype=np.int32)))
    tables = Tables(levels, counted.vocabulary)
    return tables if kept is None else tables.take(kept)


def log(probability: NDArray[np.float64]) -> Logs:
    """The logarithm as it is stored; -inf for what has no mass."""
    with np.errstate(divide="ignore"):
        return np.log(probability).astype(np.float32)
