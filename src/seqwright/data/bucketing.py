"""Length bucketing: batches of examples of similar length, to keep padding low; each example exactly once per epoch."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch, token_batch_boundaries
from seqwright.data.order import permutation

Ints = NDArray[np.int64]

BUCKETS_PER_DOUBLING = 8
"""Length buckets per doubling of the length; lengths of one bucket differ by about 9 % at most."""


class Examples(Protocol):
    """Examples with random access."""

    def batch(self, rows: Ints) -> Batch:
        """These examples, padded to the longest."""
        ...


class SizedExamples(Examples, Protocol):
    """Examples with one length each."""

    @property
    def lengths(self) -> Ints:
        """(examples,): positions of each example."""
        ...


class BucketedFeed(ABC):
    """Batches cut from the examples in order of length.

    Which examples of similar length share a batch, and the order of batches, change with the epoch. Batch boundaries do
    not, since the sorted lengths are the same in every epoch.
    """

    carried = False

    def __init__(self, examples: Examples, boundaries: Sequence[int], *, seed: int):
        self.examples, self.boundaries, self.seed = examples, boundaries, seed
        self.steps_per_epoch = len(boundaries) - 1

    def batch(self, step: int) -> Batch:
        return self.examples.batch(self.rows(step))

    def rows(self, step: int) -> Ints:
        """The indices of the examples of a step."""
        epoch, number = divmod(step, self.steps_per_epoch)
        index = permutation(self.seed, epoch, self.steps_per_epoch)[number]
        return self._order(epoch)[self.boundaries[index] : self.boundaries[index + 1]]

    @abstractmethod
    def _order(self, epoch: int) -> Ints:
        """The examples by length, shuffled for this epoch within each bucket."""


class ByLength(BucketedFeed):
    """A bucketed feed of examples with one length each."""

    def __init__(
        self, examples: SizedExamples, *, seed: int, batch: int, tokens: int | None = None, repeats: Ints | None = None
    ):
        """`repeats` (examples,) is how often an epoch visits each example: once, unless classes are oversampled."""
        indices = np.arange(len(examples.lengths))
        self.indices = indices if repeats is None else np.repeat(indices, repeats)
        lengths = examples.lengths[self.indices]
        self.buckets = np.floor(BUCKETS_PER_DOUBLING * np.log2(np.maximum(lengths, 1))).astype(np.int64)
        longest = np.zeros(self.buckets.max() + 1, np.int64)
        np.maximum.at(longest, self.buckets, lengths)
        # Budgeted by the longest length of each bucket, so that no shuffle inside it can exceed the token budget.
        super().__init__(examples, batch_boundaries(np.sort(longest[self.buckets]), tokens, batch), seed=seed)

    @functools.lru_cache(maxsize=1)  # noqa: B019 a feed lives as long as its training
    def _order(self, epoch: int) -> Ints:
        """The examples by bucket, shuffled for this epoch within each bucket."""
        shuffled = permutation(self.seed, epoch, len(self.indices))
        return self.indices[shuffled[np.argsort(self.buckets[shuffled], kind="stable")]]


def batch_boundaries(lengths: Ints, tokens: int | None, batch: int) -> list[int]:
    """Boundaries of batches among ordered lengths: `batch` rows each, or rows · longest within a budget of `tokens`."""
    if tokens is None:
        return [*range(0, len(lengths), batch), len(lengths)]
    return token_batch_boundaries(lengths.tolist(), tokens)
