"""Weights of a mixture: EM finds those that made a text, and no others explain it better."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.config import UserError
from seqwright.metrics.interpolation import best_weights

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
