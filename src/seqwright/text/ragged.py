"""Rows of ids of different lengths, one after the other in one array: many words at once, without a loop over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    ids: Ints
    """(N,)"""
    lengths: Ints
    """(R,)"""

    @property
    def starts(self) -> Ints:
        """Where each row begins in the ids."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, rows: Ints) -> Ragged:
        """These rows, in this order."""
        return Ragged(self.ids[spread(self.starts[rows], self.lengths[rows])], self.lengths[rows])

    @classmethod
    def of(cls, parts: Iterable[tuple[Ints, NDArray[np.integer]]], count: int) -> Ragged:
        """From matrices (r, n) and the numbers (r,) of their rows, each of `count` rows in one of them."""
        parts = list(parts)
        lengths = np.zeros(count, np.int64)
        for rows, matrix in parts:
            lengths[rows] = matrix.shape[1]
        whole = cls(np.zeros(lengths.sum(), np.int64), lengths)
        starts = whole.starts
        for rows, matrix in parts:
            whole.ids[starts[rows, None] + np.arange(matrix.shape[1])] = matrix
        return whole


def spread(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1, …, so many of each."""
    begins = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - begins, lengths)
