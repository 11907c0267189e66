"""Minimum Bayes risk: of several outputs, the one that would do best on average if the others were right.

Kumar & Byrne 2004; Eikema & Aziz 2020 draw the outputs by sampling. Utilities come from outside: any metric serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def least_risk(utilities: NDArray[np.float64], log_probs: Sequence[float] | None = None) -> tuple[int, float]:
    """The number of the best output and its expected utility, given utilities (N, N) of output i against j.

    Samples weigh alike: they come as often as they are probable. An n-best list is weighed by its log-probabilities.
    """
    weights = np.zeros(len(utilities)) if log_probs is None else np.asarray(log_probs, np.float64)
    weights = np.exp(weights - weights.max())
    expected = utilities @ (weights / weights.sum())
    best = int(expected.argmax())
    return best, float(expected[best])
