"""N-gram counting: every n-gram of a stream of ids, order by order, identified by an int64 key.

An n-gram's key is row(prefix) * V + last id, where row(prefix) is the index of its prefix in the sorted keys of the
order below. Each order is then one sort of int64 keys: exact for any order, without hashing. Text that does not fit in
memory is counted by external merge sort: sorted runs of blocks, then a merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.core.mapped import release, track
from seqwright.models.ngram.meter import UNSEEN, Meter
from seqwright.models.ngram.scratch import Scratch, differs_from_previous, sort_with_index

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Order:
    """The n-grams of one order, sorted by key; a row is the index of an n-gram in this sorting."""

    key: Ints
    """row(prefix) * V + last id; for unigrams the id itself, so that every id has a row, seen or not."""
    count: Ints
    """Occurrences; zero where the last id is never predicted (<sos>), so that the n-gram is only a context."""
    suffix: Ints
    """Row, in the order below, of the n-gram without its first id; for unigrams the id itself."""
    starts_with_sos: Mask
    """Whether the first id is <sos>, which nothing precedes."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Counts:
    """Counts of all n-grams of a text, for every order up to that of the model."""

    orders: list[Order]
    first_position: Ints
    """(V,): position of the first occurrence of each id, -1 if it never occurs."""

    @property
    def vocabulary(self) -> int:
        return len(self.first_position)

    def first_ids(self, n: int, rows: Ints) -> Ints:
        """The first id of each n-gram of length n + 1, by following prefixes down to unigrams."""
        for order in self.orders[n:0:-1]:
            rows = order.key[rows] // self.vocabulary
        return rows


@dataclass(frozen=True)
class SortedRun:
    """The distinct n-grams of one block of text, sorted by key: a run of the external merge sort."""

    key: Ints
    count: Ints
    suffix: Ints


def count_ngrams(
    ids: Ids, order: int, *, predictable: Mask, sos: int | None, running: bool, scratch: Scratch, meter: Meter = UNSEEN
) -> Counts:
    """Counts of the n-grams of orders 1 to `order`; unless `running`, none crosses a document boundary (<sos>)."""
    track(ids)
    unigrams, first_position = _unigrams(ids, predictable, sos, scratch)
    counts = Counts([unigrams], first_position)
    dtype = np.int32 if len(ids) < 1 << 31 else np.int64  # of rows and counts: an order has at most as many n-grams
    rows = scratch.map(np.asarray, ids, dtype=dtype)
    for n in range(2, order + 1):
        runs, ends = [], scratch.empty(len(ids), dtype)
        for block in scratch.blocks(len(ids)):
            run, ends[block] = _sorted_run(ids, rows, block, len(predictable), None if running else sos)
            runs.append(SortedRun(*map(scratch.spill, (run.key, run.count.astype(dtype), run.suffix))))
            meter.advance(block.stop - block.start, f"counting {n}-grams")
        merged, positions = merge_runs(runs, scratch, meter, f"merging {n}-grams")
        if not len(merged.key):
            raise UserError(
                f"there are no {n}-grams: the longest document has {n - 1} tokens, <sos> and <eos> included; "
                f"try order = {n - 1}."
            )
        for block, position in zip(scratch.blocks(len(ids)), positions, strict=True):
            here = ends[block]  # a view
            known = np.flatnonzero(here >= 0)  # none in a block of short documents
            here[known] = position.take(here[known])
        rows = ends
        counts.orders.append(_order(merged, counts.orders[-1], predictable, scratch))
    return counts


def _unigrams(ids: Ids, predictable: Mask, sos: int | None, scratch: Scratch) -> tuple[Order, Ints]:
    """Every id of the vocabulary as a unigram, and the position of its first occurrence."""
    vocabulary = np.arange(len(predictable))
    count, first_position = np.zeros_like(vocabulary), np.full_like(vocabulary, -1)
    for block in scratch.blocks(len(ids)):
        words = ids[block]
        count += np.bincount(words, minlength=len(vocabulary))
        here = np.full_like(vocabulary, -1)
        # Of repeated indices the last assignment wins: reversed, that is the earliest position.
        here[words[::-1]] = np.arange(block.start, block.stop)[::-1]
        first_position = np.where(first_position < 0, here, first_position)
    count *= predictable
    if not count.any():
        raise UserError("the training text has nothing to count; give one with at least one token.")
    return Order(vocabulary, count, vocabulary, vocabulary == sos), first_position


def _sorted_run(ids: Ids, rows: Ints, block: slice, vocabulary: int, boundary: int | None) -> tuple[SortedRun, Ints]:
    """The n-grams that end in a block, and for each position the index in the run of the one ending there, or -1.

    `rows` are the (n-1)-grams that end at each position; none is extended by a `boundary` id.
    """
    words = ids[block]
    prefix = rows[block.start - 1 : block.stop - 1] if block.start else np.append(-1, rows[: block.stop - 1])
    known = prefix >= 0 if boundary is None else (prefix >= 0) & (words != boundary)
    at = np.flatnonzero(known)
    key, order = sort_with_index(prefix[at].astype(np.int64) * vocabulary + words[at])
    is_first = differs_from_previous(key)
    first, at = np.flatnonzero(is_first), at[order]
    position = np.full(len(words), -1, rows.dtype)
    position[at] = np.cumsum(is_first) - 1
    return SortedRun(key[first], np.diff(first, append=len(key)), rows[block][at[first]]), position


def merge_runs(
    runs: list[SortedRun], scratch: Scratch, meter: Meter = UNSEEN, stage: str = ""
) -> tuple[SortedRun, list[Ints]]:
    """K-way merge of sorted runs, and for each run the positions of its n-grams in the merged one."""
    if len(runs) == 1:
        return runs[0], [np.arange(len(runs[0].key))]
    size, dtype = sum(len(run.key) for run in runs), runs[0].count.dtype
    key, count, suffix = (scratch.empty(size, kind) for kind in (np.int64, dtype, dtype))
    positions = [scratch.empty(len(run.key), dtype) for run in runs]
    step = max((scratch.block or size) // len(runs), 1)
    read, written = [0] * len(runs), 0
    while any(at < len(run.key) for at, run in zip(read, runs, strict=True)):
        ahead = [run.key[at : at + step] for at, run in zip(read, runs, strict=True)]
        # Keys up to the smallest last key of the unfinished runs are complete: whatever is read later is larger.
        limits = [keys[-1] for keys, at, run in zip(ahead, read, runs, strict=True) if at + step < len(run.key)]
        sizes = [np.searchsorted(keys, min(limits), "right") if limits else len(keys) for keys in ahead]
        parts = [slice(at, at + int(m)) for at, m in zip(read, sizes, strict=True)]
        keys, order = sort_with_index(np.concatenate([run.key[part] for run, part in zip(runs, parts, strict=True)]))
        is_first = differs_from_previous(keys)
        first = np.flatnonzero(is_first)
        here = slice(written, written + len(first))
        counts = np.concatenate([run.count[part] for run, part in zip(runs, parts, strict=True)])
        suffixes = np.concatenate([run.suffix[part] for run, part in zip(runs, parts, strict=True)])
        key[here], count[here] = keys[first], np.add.reduceat(counts[order], first)
        suffix[here] = suffixes[order[first]]
        rows = np.empty(len(keys), dtype)
        rows[order] = written + np.cumsum(is_first) - 1
        for position, part, merged in zip(positions, parts, np.split(rows, np.cumsum(sizes[:-1])), strict=True):
            position[part] = merged
        read, written = [part.stop for part in parts], here.stop
        release()
        meter.advance(len(keys), stage)
    return SortedRun(key[:written], count[:written], suffix[:written]), positions


def _order(run: SortedRun, below: Order, predictable: Mask, scratch: Scratch) -> Order:
    """The merged run of one order with its counts of predictable n-grams and <sos> flags."""
    vocabulary = len(predictable)
    count = scratch.map(
        lambda key, count: count * predictable[key % vocabulary], run.key, run.count, dtype=run.count.dtype
    )
    starts_with_sos = scratch.empty(len(run.key), bool)
    for block in scratch.blocks(len(run.key)):
        starts_with_sos[block] = below.starts_with_sos[run.key[block] // vocabulary]
    return Order(run.key, count, run.suffix, starts_with_sos)
