"""Mixture weights tuned on held-out data: linear interpolation by EM, log-linear pooling by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.metrics.score import Floats

MAX_ITERATIONS = 200
TOLERANCE = 1e-7
"""Converged when no weight changes by more."""


def interpolation_weights(log_probs: Floats) -> Floats:
    """Maximum-likelihood linear interpolation weights (M,) for log-probabilities (T, M), by EM (Jelinek & Mercer 1980).

    Tokens with zero probability under every model are skipped.
    """
    scored = log_probs[np.isfinite(log_probs).any(1)]
    if not len(scored):
        raise UserError(
            "every held-out token has zero probability under all models, so weights cannot be tuned; give other text."
        )
    probability = np.exp(scored - scored.max(1, keepdims=True))
    weights = np.full(scored.shape[1], 1 / scored.shape[1])
    for _ in range(MAX_ITERATIONS):
        posterior = probability * weights  # E-step (T, M): p(model | token)
        posterior /= posterior.sum(1, keepdims=True)
        previous, weights = weights, posterior.mean(0)
        if np.abs(weights - previous).max() < TOLERANCE:
            break
    normalized: Floats = weights / weights.sum()
    return normalized


def geometric_weights(log_probs: Floats, targets: NDArray[np.int64]) -> Floats:
    """Log-linear pooling (Genest & Zidek 1986): non-negative weights (M,) that minimize the nll of targets (N,) under
    softmax(Σ weight · log p) of log-probabilities (M, N, C). Weights need not sum to 1, so a temperature is included.

    The nll is convex in the weights: projected Newton steps over the weights that are not held at zero.
    """
    models, examples = log_probs.shape[:2]
    weights = np.full(models, 1 / models)
    target_log_probs = log_probs[:, np.arange(examples), targets]  # (M, N)
    for _ in range(MAX_ITERATIONS):
        logits = np.einsum("m,mnc->nc", weights, log_probs)
        probability = np.exp(logits - logits.max(1, keepdims=True))
        probability /= probability.sum(1, keepdims=True)
        expected = probability * log_probs  # (M, N, C)
        mean = expected.sum(2)
        gradient = (mean - target_log_probs).mean(1)
        hessian = (np.tensordot(expected, log_probs, ((1, 2), (1, 2))) - mean @ mean.T) / examples
        free = (weights > 0) | (gradient < 0)
        step = np.zeros(models)
        # Identical models make the Hessian singular: lstsq takes the minimum-norm step.
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], gradient[free], rcond=1e-9)[0]
        previous, weights = weights, np.maximum(0.0, weights - step)
        if np.abs(weights - previous).max() < TOLERANCE:
            break
    return weights
