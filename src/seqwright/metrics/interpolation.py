"""Weights of several models under which they together find held-out text, or held-out answers, most probable."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.metrics.score import Floats

ROUNDS = 200
ENOUGH = 1e-7
"""The search ends when no weight moves by more."""


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


def geometric_weights(log_probs: Floats, wanted: NDArray[np.int64]) -> Floats:
    """Weights (M,), none negative, under which softmax(Σ weight log p) of log-probabilities (M, N, C) finds the wanted
    answers (N,) most probable: log-linear pooling (Genest & Zidek 1986), its temperature included.

    The loss is convex in the weights: all that are not held at zero take a Newton step together until none moves.
    """
    many, count = log_probs.shape[:2]
    weights = np.full(many, 1 / many)
    own = log_probs[:, np.arange(count), wanted]  # (M, N)
    for _ in range(ROUNDS):
        logits = np.einsum("m,mnc->nc", weights, log_probs)
        probability = np.exp(logits - logits.max(1, keepdims=True))
        probability /= probability.sum(1, keepdims=True)
        expected = probability * log_probs  # (M, N, C)
        mean = expected.sum(2)
        slope = (mean - own).mean(1)
        curve = (np.tensordot(expected, log_probs, ((1, 2), (1, 2))) - mean @ mean.T) / count
        free = (weights > 0) | (slope < 0)
        step = np.zeros(many)
        # Models that say the same share a step: the shortest of those that do.
        step[free] = np.linalg.lstsq(curve[np.ix_(free, free)], slope[free], rcond=1e-9)[0]
        before, weights = weights, np.maximum(0.0, weights - step)
        if np.abs(weights - before).max() < ENOUGH:
            break
    return weights
