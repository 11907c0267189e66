"""Several corpora mixed by weight: how many rows of each, and how often each is read, whatever their sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.data.order import permutation
from seqwright.data.text.stream import Stream, to_batch
from seqwright.data.text.windows import Windows

PERIOD = 1 << 12
"""Rows after which each corpus has had its share exactly; weights are rounded to this."""


class Mixture:
    """Packed windows of several streams: row by row, a corpus by its weight, and the next window in that one's order.

    Which corpus a row belongs to is a fixed pattern of (seed, row), and each corpus counts its own rows, so any step
    can be asked for at any time. An epoch is as many windows as all corpora have together; the small ones are read more
    often in it if their weight says so, the large ones not to the end.
    """

    carried = False

    def __init__(self, streams: Sequence[Stream], weights: Sequence[float], *, context: int, batch: int, seed: int):
        assert len(streams) == len(weights)
        self.parts = [
            Windows(stream, context=context, batch=batch, seed=seed + number) for number, stream in enumerate(streams)
        ]
        self.rows = batch
        self.steps_per_epoch = -(-sum(part.windows for part in self.parts) // batch)
        shares = share_out(weights, PERIOD)
        self.pattern = np.repeat(np.arange(len(shares)), shares)[permutation(seed, 0, PERIOD)]  # (P,) corpus by row
        counts = (self.pattern[:, None] == np.arange(len(shares))).cumsum(0)  # (P, corpora)
        self.before = np.vstack([np.zeros_like(counts[:1]), counts])  # (P + 1, corpora) rows of each before a row

    def batch(self, step: int) -> Batch:
        rows = np.arange(step * self.rows, (step + 1) * self.rows)
        period, place = np.divmod(rows, PERIOD)
        corpus = self.pattern[place]  # (B,)
        number = period * self.before[-1, corpus] + self.before[place, corpus]  # (B,) in its corpus's own order
        inputs, targets = zip(
            *(part.read(number[corpus == which]) for which, part in enumerate(self.parts) if np.any(corpus == which)),
            strict=True,
        )
        return to_batch(np.concatenate(inputs), np.concatenate(targets))


def share_out(weights: Sequence[float], whole: int) -> NDArray[np.int64]:
    """A whole number split by weight: rounded down, what is left to the largest remainders; nobody gets nothing."""
    exact = np.array(weights) / sum(weights) * whole
    shares = np.maximum(1, np.floor(exact)).astype(np.int64)
    for place in np.argsort(np.floor(exact) - exact, kind="stable")[: max(0, whole - int(shares.sum()))]:
        shares[place] += 1
    shares[np.argmax(shares)] -= int(shares.sum()) - whole
    return shares


def epochs(weight: float, tokens: float, size: float) -> float:
    """How often a corpus is read when its share of so many tokens is drawn from it (GPT-3's table 2.2)."""
    return weight * tokens / size
