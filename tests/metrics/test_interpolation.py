"""Mixture weights: EM recovers those that generated a text; both methods reach the maximum likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from seqwright.core.config import UserError
from seqwright.metrics.calibration import log_softmax
from seqwright.metrics.interpolation import geometric_weights, interpolation_weights

MODELS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])


def sampled(weights: list[float]) -> np.ndarray:
    """Log-probabilities (T, 2) of a text sampled from a mixture of the two models."""
    return np.log(MODELS.T[np.random.default_rng(0).choice(3, 20000, p=np.array(weights) @ MODELS)])


def test_em_recovers_the_weights_of_the_mixture() -> None:
    assert interpolation_weights(sampled([0.3, 0.7])) == pytest.approx([0.3, 0.7], abs=0.02)


def test_em_weights_maximize_the_likelihood() -> None:
    log_probs = sampled([0.6, 0.4])
    best = interpolation_weights(log_probs)

    def likelihood(weight: float) -> float:
        return float(np.log(np.exp(log_probs) @ [weight, 1 - weight]).sum())

    assert all(likelihood(best[0]) >= likelihood(weight) for weight in np.linspace(0, 1, 101)[1:-1])


def test_em_skips_tokens_of_zero_probability() -> None:
    assert interpolation_weights(np.array([[-1.0, -np.inf], [-np.inf, -np.inf]])).tolist() == [1, 0]
    with pytest.raises(UserError, match="give other text"):
        interpolation_weights(np.full((3, 2), -np.inf))


@pytest.mark.parametrize("seed", range(3))
def test_geometric_weights_minimize_the_loss(seed: int) -> None:
    """Log-linear pooling: no neighbor is better, a useless model gets weight 0, a single model its temperature."""
    generator = np.random.default_rng(seed)
    true_logits = generator.normal(0, 2, (3000, 3))
    targets = (np.exp(log_softmax(true_logits)).cumsum(1) < generator.random((3000, 1))).sum(1)
    noisy = [log_softmax(true_logits + generator.normal(0, noise, true_logits.shape)) for noise in (1.0, 1.0)]
    useless = log_softmax(-true_logits)
    log_probs = np.stack([*noisy, useless])
    weights = geometric_weights(log_probs, targets)

    def loss(at: np.ndarray) -> float:
        return float(-log_softmax(np.einsum("m,mnc->nc", at, log_probs))[np.arange(3000), targets].mean())

    assert weights[2] == 0
    assert weights[:2].min() > 0.2
    for n in range(3):
        for step in (-1e-3, 1e-3):
            moved = weights.copy()
            moved[n] = max(0.0, moved[n] + step)
            assert loss(weights) <= loss(moved) + 1e-12
    assert geometric_weights(3 * true_logits[None], targets)[0] == pytest.approx(1 / 3, rel=0.1)


@pytest.mark.parametrize(("factors", "noise", "classes", "seed"), [((3, 3), 1, 500, 0), ((1, 3), 0.1, 60, 5)])
def test_geometric_weights_are_the_minimum_where_newtons_whole_steps_are_not(
    factors: tuple[float, float], noise: float, classes: int, seed: int
) -> None:
    """Of models that are alike and too sure: whole steps ended at 1.8 times the minimum, and at weights of 1e18."""
    generator = np.random.default_rng(seed)
    truth = 8 * generator.normal(size=(100, classes))
    log_probs = np.stack([log_softmax(by * truth + noise * generator.normal(size=truth.shape)) for by in factors])
    log_probs[0, :, :2] = -50
    log_probs = np.maximum(log_probs, -50)
    targets = np.array([generator.choice(classes, p=np.exp(row)) for row in log_softmax(truth)])

    def nll(weights: np.ndarray) -> float:
        pooled = np.einsum("m,mnc->nc", weights, log_probs)
        return float(-log_softmax(pooled)[np.arange(100), targets].mean())

    least = scipy.optimize.minimize(nll, [0.1, 0.1], bounds=[(0, None)] * 2, method="L-BFGS-B").fun
    assert nll(geometric_weights(log_probs, targets)) == pytest.approx(least, abs=1e-6)
