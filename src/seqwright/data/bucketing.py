"""Examples of like length in one batch, so that little is padding: every one exactly once an epoch."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch, within
from seqwright.data.order import permutation

Ints = NDArray[np.int64]

CLASSES = 8
"""Classes of lengths in which all examples count as alike, for each doubling of the length."""


class Examples(Protocol):
    """What can be read in any order."""

    def batch(self, rows: Ints) -> Batch:
        """These examples, padded to the longest of them."""
        ...


class Measured(Examples, Protocol):
    """Examples of one length each."""

    @property
    def lengths(self) -> Ints:
        """(examples,): positions that each takes."""
        ...


class Planned(ABC):
    """Batches cut from an order of examples by length. Which examples of like lengths meet, and the order of batches,
    change with the epoch; where batches are cut does not, since the sorted lengths are the same."""

    carried = False

    def __init__(self, examples: Examples, cuts: Sequence[int], *, seed: int):
        self.examples, self.cuts, self.seed = examples, cuts, seed
        self.steps_per_epoch = len(cuts) - 1

    def batch(self, step: int) -> Batch:
        return self.examples.batch(self.rows(step))

    def rows(self, step: int) -> Ints:
        """Which examples a step reads."""
        epoch, number = divmod(step, self.steps_per_epoch)
        place = permutation(self.seed, epoch, self.steps_per_epoch)[number]
        return self._order(epoch)[self.cuts[place] : self.cuts[place + 1]]

    @abstractmethod
    def _order(self, epoch: int) -> Ints:
        """The examples by length, those of like lengths as this epoch shuffles them."""


class ByLength(Planned):
    """Examples in classes of like lengths."""

    def __init__(
        self, examples: Measured, *, seed: int, batch: int, tokens: int | None = None, times: Ints | None = None
    ):
        """`times` says how often an epoch visits each example: once, unless it evens out classes."""
        visited = np.arange(len(examples.lengths))
        self.visited = visited if times is None else np.repeat(visited, times)
        lengths = examples.lengths[self.visited]
        self.classes = np.floor(CLASSES * np.log2(np.maximum(lengths, 1))).astype(np.int64)
        longest = np.zeros(self.classes.max() + 1, np.int64)
        np.maximum.at(longest, self.classes, lengths)
        super().__init__(examples, cuts(np.sort(longest[self.classes]), tokens, batch), seed=seed)

    @functools.lru_cache(maxsize=1)  # noqa: B019 a feed lives as long as its training
    def _order(self, epoch: int) -> Ints:
        """The examples by class of length, those of one class as this epoch shuffles them."""
        shuffled = permutation(self.seed, epoch, len(self.visited))
        return self.visited[shuffled[np.argsort(self.classes[shuffled], kind="stable")]]


def cuts(lengths: Ints, tokens: int | None, batch: int) -> list[int]:
    """Where batches begin and end among sorted lengths: so many rows, or rows · longest within the tokens."""
    if tokens is None:
        return [*range(0, len(lengths), batch), len(lengths)]
    return within(lengths.tolist(), tokens)
