"""Scores of answers that are numbers: correlations and squared errors as additive counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats


def value_counts(answered: Floats, wanted: Floats) -> Iterator[Counts]:
    """Pearson's and Spearman's correlation, mean squared and mean absolute error."""
    facts = f"examples:{len(wanted)}"
    yield Counts(name="pearson", rows=_moments(answered, wanted), formula=pearson, signature=f"pearson|{facts}")
    # Ranks are those among all examples, in resamples too: an example brings its own.
    ranks = _moments(_ranks(answered), _ranks(wanted))
    yield Counts(name="spearman", rows=ranks, formula=pearson, signature=f"spearman|{facts}|ties:mean")
    one = np.ones(len(wanted))
    for name, errors in (("mse", (answered - wanted) ** 2), ("mae", np.abs(answered - wanted))):
        rows = np.stack([errors, one], 1)
        yield Counts(name=name, rows=rows, formula=mean, signature=f"{name}|{facts}", better=-1)


def pearson(sums: Floats) -> Floats:
    """Correlation from sums of 1, x, y, x², y², xy; 0 where a side is constant."""
    many, x, y, xx, yy, xy = sums.T
    variances = (many * xx - x**2) * (many * yy - y**2)
    return np.where(variances > 0, (many * xy - x * y) / np.sqrt(np.where(variances > 0, variances, 1)), 0.0)


def _moments(x: Floats, y: Floats) -> Floats:
    # A correlation does not mind what is subtracted; sums of squares about the mean keep their digits.
    x, y = x - x.mean(), y - y.mean()
    return np.stack([np.ones(len(x)), x, y, x**2, y**2, x * y], 1)


def _ranks(values: Floats) -> Floats:
    """Places in ascending order; equal values share the mean of theirs."""
    _, which, many = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(many)
    ranks: Floats = (last - (many - 1) / 2)[which]
    return ranks
