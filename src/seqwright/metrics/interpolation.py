"""Interpolation weights: in which shares several models together find a held-out text most probable."""

from __future__ import annotations

import numpy as np

from seqwright.config import UserError
from seqwright.metrics.score import Floats

ROUNDS = 200
ENOUGH = 1e-7
"""EM ends when no weight moves by more."""


def best_weights(log_probs: Floats) -> Floats:
    """Weights (M,) of the largest likelihood for log-probabilities (T, M), by EM (Jelinek & Mercer 1980).

    Tokens to which no model gives any mass say nothing and are left out.
    """
    told = log_probs[np.isfinite(log_probs).any(1)]
    if not len(told):
        raise UserError("no model gives the held-out text any probability to tune the weights on; give other text.")
    probability = np.exp(told - told.max(1, keepdims=True))
    weights = np.full(told.shape[1], 1 / told.shape[1])
    for _ in range(ROUNDS):
        shares = probability * weights  # (T, M): which model answered, as far as one can tell
        shares /= shares.sum(1, keepdims=True)
        before, weights = weights, shares.mean(0)
        if np.abs(weights - before).max() < ENOUGH:
            break
    best: Floats = weights / weights.sum()
    return best
