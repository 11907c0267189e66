"""Mixture weights tuned on held-out data: linear interpolation by EM, log-linear pooling by Newton's method."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.metrics.score import Floats

MAX_ITERATIONS = 200
TOLERANCE = 1e-7
"""Converged when no weight changes by more."""
MAX_HALVINGS = 30
ROUNDING = 1e-12
"""Share by which the computed nll may rise at its minimum."""


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

    The nll is convex in the weights: projected Newton steps over the weights that are not held at zero, halved until
    the nll falls, since far from the minimum it is no parabola.
    """
    models, examples = log_probs.shape[:2]
    target_log_probs = log_probs[:, np.arange(examples), targets]  # (M, N)

    def derivatives(weights: Floats) -> tuple[float, Floats, Floats]:
        """The nll, its gradient (M,) and its Hessian (M, M)."""
        logits = np.einsum("m,mnc->nc", weights, log_probs)
        greatest = logits.max(1, keepdims=True)
        probability = np.exp(logits - greatest)
        totals = probability.sum(1, keepdims=True)
        probability /= totals
        nll = float((greatest + np.log(totals)).mean() - weights @ target_log_probs.mean(1))
        expected = probability * log_probs  # (M, N, C)
        mean = expected.sum(2)
        hessian = (np.tensordot(expected, log_probs, ((1, 2), (1, 2))) - mean @ mean.T) / examples
        return nll, (mean - target_log_probs).mean(1), hessian

    weights = np.full(models, 1 / models)
    nll, gradient, hessian = derivatives(weights)
    for _ in range(MAX_ITERATIONS):
        free = (weights > 0) | (gradient < 0)
        newton = np.zeros(models)
        # Identical models make the Hessian singular: lstsq takes the minimum-norm step.
        newton[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], gradient[free], rcond=1e-9)[0]
        previous = weights
        # Weights that a step brings to zero bend it: then Newton's may lead up, however short, but not the gradient's.
        for step, halvings in itertools.product((newton, gradient), range(MAX_HALVINGS)):
            weights = np.maximum(0.0, previous - 0.5**halvings * step)
            after = derivatives(weights)
            if after[0] <= nll + ROUNDING * abs(nll):
                break
        else:
            return previous
        nll, gradient, hessian = after
        if np.abs(weights - previous).max() < TOLERANCE:
            break
    return weights
