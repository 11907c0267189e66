"""Weighted mixture of corpora: the share of rows from each corpus follows its weight, whatever its size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.data.order import permutation
from seqwright.data.text.stream import Stream, to_batch
from seqwright.data.text.windows import Windows

PERIOD = 1 << 12
"""Rows after which the shares of the corpora are exact; weights are rounded to 1 / PERIOD."""


class Mixture:
    """A feed of packed windows from several streams: each row takes the next window of a corpus chosen by weight.

    The corpus of a row is a fixed periodic pattern of (seed, row), and each corpus counts its own rows, so that any
    step can be computed without replaying earlier ones (decision 37). An epoch has as many windows as all corpora
    together; corpora with a high weight for their size repeat in it, others are read in part.
    """

    carried = False

    def __init__(
        self,
        streams: Sequence[Stream],
        weights: Sequence[float],
        *,
        context: int,
        batch: int,
        seed: int,
        block: int | None = None,
    ):
        assert len(streams) == len(weights)
        self.parts = [
            Windows(stream, context=context, batch=batch, seed=seed + number, block=block)
            for number, stream in enumerate(streams)
        ]
        self.rows = batch
        self.steps_per_epoch = -(-sum(part.windows for part in self.parts) // batch)
        shares = apportion(weights, PERIOD)
        self.pattern = np.repeat(np.arange(len(shares)), shares)[permutation(seed, 0, PERIOD)]  # (P,) corpus of a row
        counts = (self.pattern[:, None] == np.arange(len(shares))).cumsum(0)  # (P, corpora)
        self.before = np.vstack([np.zeros_like(counts[:1]), counts])  # (P + 1, corpora) rows of each before a row

    def batch(self, step: int) -> Batch:
        rows = np.arange(step * self.rows, (step + 1) * self.rows)
        period, phase = np.divmod(rows, PERIOD)
        corpus = self.pattern[phase]  # (B,)
        number = period * self.before[-1, corpus] + self.before[phase, corpus]  # (B,) index in the order of its corpus
        inputs, targets = zip(
            *(part.read(number[corpus == index]) for index, part in enumerate(self.parts) if np.any(corpus == index)),
            strict=True,
        )
        return to_batch(np.concatenate(inputs), np.concatenate(targets))


def apportion(weights: Sequence[float], total: int) -> NDArray[np.int64]:
    """Integer shares of `total` by weight: the largest remainder method, with at least 1 for every weight."""
    quotas = np.array(weights) / sum(weights) * total
    shares = np.maximum(1, np.floor(quotas)).astype(np.int64)
    for index in np.argsort(np.floor(quotas) - quotas, kind="stable")[: max(0, total - int(shares.sum()))]:
        shares[index] += 1
    shares[np.argmax(shares)] -= int(shares.sum()) - total  # where the minimum of 1 gave out too many
    return shares


def epochs(weight: float, tokens: float, size: float) -> float:
    """Epochs over a corpus of `size` tokens in a training on `tokens`, at this weight (GPT-3's table 2.2)."""
    return weight * tokens / size
