"""Edits: how far one sequence is from another, and the error rates built on that."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.counts import Counts, ratio
from seqwright.metrics.translation import check_pairs


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Insertions, deletions and substitutions that turn one into the other (Levenshtein 1966), a row at a time."""
    first, second = _numbered(one, other)
    places = np.arange(len(second) + 1)
    row = places
    for n, item in enumerate(first, 1):
        best = np.empty_like(row)
        best[0] = n
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (second != item))
        # An insertion costs one a place: along the row, the least of (cost - place) so far.
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])


def common_subsequence(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The length of the longest sequence that both contain in order, gaps allowed."""
    first, second = _numbered(one, other)
    row = np.zeros(len(second) + 1, np.int64)
    for item in first:
        row[1:] = np.maximum.accumulate(np.maximum(row[1:], row[:-1] + (second == item)))
    return int(row[-1])


def error_rate(
    outputs: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]], unit: str = "word"
) -> Counts:
    """Edits for each reference token, in per cent: word or phoneme error rate, against the nearest reference."""
    check_pairs(outputs, references)
    rows = np.array([_nearest(output, several) for output, several in zip(outputs, references, strict=True)])
    signature = f"{unit}_error_rate|nearest reference"
    return Counts(
        name=f"{unit}_error_rate",
        rows=rows.reshape(-1, 2).astype(np.float64),
        formula=ratio,
        signature=signature,
        better=-1,
    )


def _nearest(output: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> tuple[int, int]:
    counted = ((edit_distance(output, reference), len(reference)) for reference in references)
    return min(counted, key=lambda pair: pair[0] / max(1, pair[1]))


def _numbered(one: Sequence[Hashable], other: Sequence[Hashable]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both as arrays of numbers, equal where items are."""
    numbers: dict[Hashable, int] = {}
    return tuple(  # type: ignore[return-value]
        np.array([numbers.setdefault(item, len(numbers)) for item in items], np.int64) for items in (one, other)
    )
