"""Adaptive n-grams: the cache against a naive implementation, ragged states, and repetitive text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.models.ngram.adaptive import Adaptive, AdaptiveOptions
from tests.models.test_ngram import Cows

OPTIONS = AdaptiveOptions(shortest=1, longest=3, strength=2.0)


@pytest.fixture(scope="module")
def cows() -> Cows:
    return Cows(order=3)


@pytest.fixture(scope="module")
def adaptive(cows: Cows) -> Adaptive:
    return Adaptive(cows.model, OPTIONS, cows.model.vocabulary)


def naive_cache(prior: np.ndarray, text: list[int]) -> np.ndarray:
    """The distribution after a text, from one count of it per context length; <sos> is never counted."""
    for m in range(OPTIONS.shortest, OPTIONS.longest + 1):
        if m > len(text):
            break
        followed = [text[p + 1] for p in range(m - 1, len(text) - 1) if text[p + 1 - m : p + 1] == text[-m:]]
        counts = np.bincount([id for id in followed if id != 2], minlength=len(prior))
        mass = OPTIONS.strength * np.count_nonzero(counts)
        if counts.any():
            prior = (counts + mass * prior) / (counts.sum() + mass)
    return prior


def test_adaptive_cache_matches_the_formula(cows: Cows, adaptive: Adaptive) -> None:
    ids = torch.from_numpy(np.random.default_rng(1).choice([2, 3, 4, 5, 6], (2, 40)))
    target = torch.cat([ids[:, 1:], torch.full((2, 1), 5)], 1)
    batch = Batch.of_text(ids, target.masked_fill(target == 2, IGNORE))
    prior = cows.model(batch).double().exp().numpy()
    expected = np.array([[naive_cache(prior[b, t], ids[b, : t + 1].tolist()) for t in range(40)] for b in range(2)])
    assert adaptive(batch).exp().numpy() == pytest.approx(expected, rel=1e-5)
    scored = np.take_along_axis(expected, target.numpy()[..., None], 2)[..., 0]
    probabilities = adaptive.score(batch)[0].exp().numpy()
    assert probabilities[target.numpy() != 2] == pytest.approx(scored[target.numpy() != 2], rel=1e-5)


def test_ragged_rows_of_an_adaptive_state_equal_single_rows(cows: Cows, adaptive: Adaptive) -> None:
    ids = torch.from_numpy(np.random.default_rng(2).choice([4, 5, 6], (2, 30)))
    count = torch.tensor([20, 7])
    _, state = adaptive.step(ids[:, :20], adaptive.start(Source.empty(2), capacity=30), count)
    more = Batch.of_text(ids[:, 20:], ids[:, 20:])
    batched, _ = adaptive.score(more, state)
    for row in range(2):
        row_state = adaptive.start(Source.empty(1), capacity=30)
        _, row_state = adaptive.step(ids[row : row + 1, : int(count[row])], row_state)
        one = Batch.of_text(more.input[row : row + 1], more.target[row : row + 1])
        torch.testing.assert_close(adaptive.score(one, row_state)[0], batched[row : row + 1])


def test_adaptive_cache_improves_on_repetitive_text(cows: Cows, adaptive: Adaptive) -> None:
    ids = torch.tensor([[2, *[4, 6, 5] * 20]])
    batch = Batch.of_text(ids[:, :-1], ids[:, 1:].contiguous())
    adapted, static = (model.score(batch)[0][0, -9:].mean() for model in (adaptive, cows.model))
    assert adapted > max(-1.5, static + 0.5)


def test_invalid_adaptive_options_are_refused() -> None:
    with pytest.raises(UserError, match="contexts of 4 to 2"):
        AdaptiveOptions(shortest=4, longest=2)
    with pytest.raises(UserError, match="strength"):
        AdaptiveOptions(strength=0)
