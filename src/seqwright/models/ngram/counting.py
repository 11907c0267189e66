"""Counting: every n-gram of a stream of ids, order by order, each known by one whole number.

An n-gram's key is row(prefix) * V + last id, where row(prefix) is its prefix's place in the sorted keys of the order
below. So each order is one sort of int64 keys: exact, whatever the order, and nothing is hashed. A text too long for
memory is sorted block by block, and the sorted runs are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.models.ngram.scratch import Scratch

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Order:
    """The n-grams of one length, sorted by key; a row is an n-gram's place in that order."""

    key: Rows
    """row(prefix) * V + last id; for unigrams the id itself, so that every id has its row, seen or not."""
    count: Rows
    """How often it occurred with its last id predicted: zero where that never is (<sos>), and it is only a context."""
    suffix: Rows
    """The row, one order below, of the n-gram without its first id; for unigrams the id itself."""
    first: Mask
    """It begins with <sos>: nothing stands before it."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Counts:
    """The n-grams of a text, of every length up to the order of a model."""

    orders: list[Order]
    appearance: Rows
    """(V,): where in the text each id appears first, -1 if nowhere."""

    @property
    def vocabulary(self) -> int:
        return len(self.appearance)

    def head(self, n: int, rows: Rows) -> Rows:
        """The first ids of some n-grams of length n + 1."""
        for order in self.orders[n:0:-1]:
            rows = order.key[rows] // self.vocabulary
        return rows


@dataclass(frozen=True)
class Run:
    """The distinct n-grams of one block of text, sorted by key."""

    key: Rows
    count: Rows
    suffix: Rows


def count_ngrams(
    ids: Ids, order: int, *, predictable: Mask, sos: int | None, running: bool, scratch: Scratch
) -> Counts:
    """The n-grams of lengths 1 to `order`; unless `running`, none reaches over a <sos>."""
    scratch.watch(ids)
    unigrams, appearance = _unigrams(ids, predictable, sos, scratch)
    counted = Counts([unigrams], appearance)
    rows = scratch.map(lambda words: words, ids, dtype=np.int64)
    for n in range(2, order + 1):
        runs, ends = [], scratch.empty(len(ids), np.int64)
        for block in scratch.blocks(len(ids)):
            run, ends[block] = _run(ids, rows, block, len(predictable), None if running else sos)
            runs.append(Run(*map(scratch.keep, (run.key, run.count, run.suffix))))
        merged, places = merge(runs, scratch)
        if not len(merged.key):
            raise UserError(
                f"there are no {n}-grams: the longest document has {n - 1} ids, <sos> and <eos> counted; "
                f"try order = {n - 1}."
            )
        for block, place in zip(scratch.blocks(len(ids)), places, strict=True):
            ends[block] = np.where(ends[block] < 0, -1, place.take(ends[block], mode="clip"))
        rows = ends
        counted.orders.append(_order(merged, counted.orders[-1], predictable, scratch))
    return counted


def _unigrams(ids: Ids, predictable: Mask, sos: int | None, scratch: Scratch) -> tuple[Order, Rows]:
    """Every id of the vocabulary as an order, and where each appears first."""
    every = np.arange(len(predictable))
    count, appearance = np.zeros_like(every), np.full_like(every, -1)
    for block in scratch.blocks(len(ids)):
        words = ids[block]
        count += np.bincount(words, minlength=len(every))
        here = np.full_like(every, -1)
        here[words[::-1]] = np.arange(block.start, block.stop)[::-1]  # the last to be assigned stands: the earliest
        appearance = np.where(appearance < 0, here, appearance)
    count *= predictable
    if not count.any():
        raise UserError("there is nothing to count in the text; give one with at least one token.")
    return Order(every, count, every, every == sos), appearance


def _run(ids: Ids, rows: Rows, block: slice, vocabulary: int, border: int | None) -> tuple[Run, Rows]:
    """The n-grams that end in a block, and the place in the run of each, by position; -1 where none ends.

    `rows` holds the n-grams one shorter that end at each position; none is made of one that ends before a border.
    """
    words, suffix = ids[block].astype(np.int64), rows[block]
    prefix = rows[block.start - 1 : block.stop - 1] if block.start else np.concatenate([[-1], rows[: block.stop - 1]])
    there = (prefix >= 0) & (words != border) if border is not None else prefix >= 0
    # torch sorts int64 by radix: its unique takes a quarter of the time of numpy's.
    keys = torch.from_numpy(prefix[there] * vocabulary + words[there])
    key, inverse, count = (t.numpy() for t in torch.unique(keys, return_inverse=True, return_counts=True))
    suffixes = np.empty_like(key)
    suffixes[inverse] = suffix[there]
    place = np.full(len(words), -1)
    place[there] = inverse
    return Run(key, count, suffixes), place


def merge(runs: list[Run], scratch: Scratch) -> tuple[Run, list[Rows]]:
    """One run of all, and for each of them the places of its n-grams in it."""
    if len(runs) == 1:
        return runs[0], [np.arange(len(runs[0].key))]
    size = sum(len(run.key) for run in runs)
    key, count, suffix = (scratch.empty(size, np.int64) for _ in range(3))
    places = [scratch.empty(len(run.key), np.int64) for run in runs]
    step = max((scratch.block or size) // len(runs), 1)
    read, written = [0] * len(runs), 0
    while any(at < len(run.key) for at, run in zip(read, runs, strict=True)):
        ahead = [run.key[at : at + step] for at, run in zip(read, runs, strict=True)]
        # Keys up to the smallest that ends a stretch are complete: whatever is read later is larger.
        goes_on = [keys[-1] for keys, at, run in zip(ahead, read, runs, strict=True) if at + step < len(run.key)]
        many = [np.searchsorted(keys, min(goes_on), "right") if goes_on else len(keys) for keys in ahead]
        parts = [slice(at, at + int(m)) for at, m in zip(read, many, strict=True)]
        keys = torch.from_numpy(np.concatenate([run.key[part] for run, part in zip(runs, parts, strict=True)]))
        unique, inverse = (t.numpy() for t in torch.unique(keys, return_inverse=True))
        here = slice(written, written + len(unique))
        counts = np.concatenate([run.count[part] for run, part in zip(runs, parts, strict=True)])
        key[here], count[here] = unique, np.bincount(inverse, counts)
        suffix[here][inverse] = np.concatenate([run.suffix[part] for run, part in zip(runs, parts, strict=True)])
        for place, part, rows in zip(places, parts, np.split(inverse, np.cumsum(many[:-1])), strict=True):
            place[part] = written + rows
        read, written = [part.stop for part in parts], here.stop
        scratch.release()
    return Run(key[:written], count[:written], suffix[:written]), places


def _order(run: Run, below: Order, predictable: Mask, scratch: Scratch) -> Order:
    """A run of all n-grams of one length as an order."""
    vocabulary = len(predictable)
    count = scratch.map(lambda key, count: count * predictable[key % vocabulary], run.key, run.count, dtype=np.int64)
    first = scratch.empty(len(run.key), bool)
    for block in scratch.blocks(len(run.key)):
        first[block] = below.first[run.key[block] // vocabulary]
    return Order(run.key, count, run.suffix, first)
