"""Levenshtein distance, longest common subsequence, and word or phoneme error rates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.counts import Counts, percentage
from seqwright.metrics.translation import check_pairs


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Minimum insertions, deletions and substitutions between two sequences (Levenshtein 1966), vectorized by row."""
    first, second = _item_ids(one, other)
    positions = np.arange(len(second) + 1)
    row = positions
    for n, item in enumerate(first, 1):
        best = np.empty_like(row)
        best[0] = n
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (second != item))
        # Insertions propagate along the row: min over j ≤ i of cost[j] + (i - j) is a running minimum of cost[j] - j.
        row = np.minimum.accumulate(best - positions) + positions
    return int(row[-1])


def lcs_length(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence (LCS)."""
    first, second = _item_ids(one, other)
    row = np.zeros(len(second) + 1, np.int64)
    for item in first:
        row[1:] = np.maximum.accumulate(np.maximum(row[1:], row[:-1] + (second == item)))
    return int(row[-1])


def error_rate(
    outputs: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]], unit: str = "word"
) -> Counts:
    """Word or phoneme error rate: edits per reference token in per cent, against the closest reference."""
    check_pairs(outputs, references)
    rows = np.array(
        [_closest(output, output_references) for output, output_references in zip(outputs, references, strict=True)]
    )
    signature = f"{unit}_error_rate|nearest reference"
    return Counts(
        name=f"{unit}_error_rate",
        rows=rows.reshape(-1, 2).astype(np.float64),
        formula=percentage,
        signature=signature,
        better=-1,
    )


def _closest(output: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> tuple[int, int]:
    """(edits, reference length) of the reference with the lowest error rate."""
    candidates = ((edit_distance(output, reference), len(reference)) for reference in references)
    return min(candidates, key=lambda pair: pair[0] / max(1, pair[1]))


def _item_ids(one: Sequence[Hashable], other: Sequence[Hashable]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both sequences as integer arrays; equal items have equal ids."""
    ids: dict[Hashable, int] = {}
    return tuple(  # type: ignore[return-value]
        np.array([ids.setdefault(item, len(ids)) for item in items], np.int64) for items in (one, other)
    )
