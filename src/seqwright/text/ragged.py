"""Ragged arrays: rows of ids of different lengths in one array, to process all words without a Python loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Concatenated rows of ids and their lengths."""

    ids: Ints
    """(N,) ids of all rows, concatenated."""
    lengths: Ints
    """(R,) ids in each row."""

    @property
    def starts(self) -> Ints:
        """(R,) offset of each row in the ids."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, rows: Ints) -> Ragged:
        """The selected rows, in this order."""
        return Ragged(self.ids[concatenated_ranges(self.starts[rows], self.lengths[rows])], self.lengths[rows])

    @classmethod
    def from_groups(cls, groups: Iterable[tuple[Ints, NDArray[np.integer]]], count: int) -> Ragged:
        """`count` rows from (row numbers (r,), matrix (r, n)) groups; each row is in exactly one group."""
        groups = list(groups)
        lengths = np.zeros(count, np.int64)
        for rows, matrix in groups:
            lengths[rows] = matrix.shape[1]
        ragged = cls(np.zeros(lengths.sum(), np.int64), lengths)
        starts = ragged.starts
        for rows, matrix in groups:
            ragged.ids[starts[rows, None] + np.arange(matrix.shape[1])] = matrix
        return ragged


class RaggedTexts(Protocol):
    """Texts or pairs of texts as concatenated rows of ids, without padding."""

    @property
    def ids(self) -> Ints:
        """(N,) ids of all rows, concatenated."""
        ...

    @property
    def lengths(self) -> Ints:
        """(R,) ids in each row."""
        ...

    @property
    def segments(self) -> NDArray[np.integer] | None:
        """(N,) index of the text of a pair that each id belongs to."""
        ...

    @property
    def words(self) -> NDArray[np.integer] | None:
        """(N,) word boundaries where ids are characters (`Source.words`)."""
        ...


def concatenated_ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenated ranges: start, start + 1, …, start + length - 1 of each pair."""
    offsets = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(starts - offsets, lengths)
