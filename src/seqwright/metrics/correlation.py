"""Regression metrics as additive counts: Pearson and Spearman correlation, mean squared and absolute error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats, signature


def regression_counts(predicted: Floats, targets: Floats) -> Iterator[Counts]:
    """Counts of Pearson and Spearman correlation, MSE and MAE."""
    facts = signature(examples=len(targets))
    yield Counts(
        name="pearson", rows=_moments(predicted, targets), formula=pearson, signature=signature("pearson", facts)
    )
    # Bootstrap resamples keep the ranks of the full sample: re-ranking would not be additive.
    ranks = _moments(_ranks(predicted), _ranks(targets))
    yield Counts(name="spearman", rows=ranks, formula=pearson, signature=signature("spearman", facts, ties="mean"))
    ones = np.ones(len(targets))
    for name, errors in (("mse", (predicted - targets) ** 2), ("mae", np.abs(predicted - targets))):
        rows = np.stack([errors, ones], 1)
        yield Counts(name=name, rows=rows, formula=mean, signature=signature(name, facts), better=-1)


def pearson(sums: Floats) -> Floats:
    """Pearson correlation from sums of 1, x, y, x², y², xy; 0 if x or y is constant."""
    n, x, y, xx, yy, xy = sums.T
    variances = (n * xx - x**2) * (n * yy - y**2)
    return np.where(variances > 0, (n * xy - x * y) / np.sqrt(np.where(variances > 0, variances, 1)), 0.0)


def _moments(x: Floats, y: Floats) -> Floats:
    """(N, 6): 1, x, y, x², y², xy of each example, centered."""
    # Correlation is invariant to shifts, and centered sums of squares avoid cancellation.
    x, y = x - x.mean(), y - y.mean()
    return np.stack([np.ones(len(x)), x, y, x**2, y**2, x * y], 1)


def _ranks(values: Floats) -> Floats:
    """1-based ranks in ascending order; ties share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[inverse]
    return ranks
