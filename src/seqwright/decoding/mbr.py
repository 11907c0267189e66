"""Minimum Bayes risk (MBR) decoding: of several outputs, the one with the greatest expected utility.

Kumar & Byrne 2004; Eikema & Aziz 2020 draw the outputs by sampling. Utilities are computed by the caller: any metric of
two texts serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def minimum_bayes_risk(utilities: NDArray[np.float64], log_probs: Sequence[float] | None = None) -> tuple[int, float]:
    """The index of the best output and its expected utility, from utilities (N, N) of output i against j.

    Samples have equal weights: probable outputs are drawn more often. An n-best list is weighted by the softmax of its
    log-probabilities.
    """
    weights = np.zeros(len(utilities)) if log_probs is None else np.asarray(log_probs, np.float64)
    weights = np.exp(weights - weights.max())
    expected = utilities @ (weights / weights.sum())
    best = int(expected.argmax())
    return best, float(expected[best])
