"""Weights of a mixture: EM finds those that made a text, and no others explain it better."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.core.config import UserError
from seqwright.metrics.calibration import log_softmax
from seqwright.metrics.interpolation import best_weights, geometric_weights

MODELS = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])


def drawn(weights: list[float]) -> np.ndarray:
    """Log-probabilities (T, 2) of a text that a mixture of the two models said."""
    return np.log(MODELS.T[np.random.default_rng(0).choice(3, 20000, p=np.array(weights) @ MODELS)])


def test_em_finds_the_weights_that_made_the_text() -> None:
    assert best_weights(drawn([0.3, 0.7])) == pytest.approx([0.3, 0.7], abs=0.02)


def test_no_other_weights_make_the_text_more_probable() -> None:
    log_probs = drawn([0.6, 0.4])
    best = best_weights(log_probs)

    def likelihood(share: float) -> float:
        return float(np.log(np.exp(log_probs) @ [share, 1 - share]).sum())

    assert all(likelihood(best[0]) >= likelihood(share) for share in np.linspace(0, 1, 101)[1:-1])


def test_what_no_model_can_say_tells_nothing() -> None:
    assert best_weights(np.array([[-1.0, -np.inf], [-np.inf, -np.inf]])).tolist() == [1, 0]
    with pytest.raises(UserError, match="give other text"):
        best_weights(np.full((3, 2), -np.inf))


@pytest.mark.parametrize("seed", range(3))
def test_powers_of_a_pool_are_the_best_there_are(seed: int) -> None:
    """Log-linear weights: no neighbor does better, a useless part gets nothing, a model alone its temperature."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(0, 2, (3000, 3))
    wanted = (np.exp(log_softmax(truth)).cumsum(1) < generator.random((3000, 1))).sum(1)
    views = [log_softmax(truth + generator.normal(0, noise, truth.shape)) for noise in (1.0, 1.0)]
    contrary = log_softmax(-truth)
    log_probs = np.stack([*views, contrary])
    weights = geometric_weights(log_probs, wanted)

    def loss(at: np.ndarray) -> float:
        return float(-log_softmax(np.einsum("m,mnc->nc", at, log_probs))[np.arange(3000), wanted].mean())

    assert weights[2] == 0
    assert weights[:2].min() > 0.2
    for n in range(3):
        for step in (-1e-3, 1e-3):
            moved = weights.copy()
            moved[n] = max(0.0, moved[n] + step)
            assert loss(weights) <= loss(moved) + 1e-12
    assert geometric_weights(3 * truth[None], wanted)[0] == pytest.approx(1 / 3, rel=0.1)
