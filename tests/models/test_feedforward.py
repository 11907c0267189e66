"""The window network sees exactly its window; the simple model sees one token."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.encoders.feedforward import FeedforwardConfig, NeuralBigramConfig


def logits(config: object, ids: list[int]) -> torch.Tensor:
    """(T, V), by the same fresh weights every time."""
    torch.manual_seed(0)
    model = build.model(config, Vocabulary(size=9)).double()
    given = torch.tensor([ids])
    with torch.no_grad():
        return model(Batch.of_text(given, given))[0]


@pytest.mark.parametrize("window", [1, 2, 4])
def test_the_last_tokens_decide_and_no_others(window: int) -> None:
    config = FeedforwardConfig(context_size=window, width=6, embedding=4)
    seen = [1, 2, 3, 4][-window:]
    answers = [logits(config, [*earlier, *seen])[-1] for earlier in ([5, 6, 7], [8, 5, 5])]
    assert_close(answers[0], answers[1])
    changed = logits(config, [5, 6, 7, 8, *seen[1:]])[-1]  # the oldest token in sight
    assert not torch.allclose(changed, answers[0])


def test_before_the_first_token_there_are_zeros() -> None:
    torch.manual_seed(0)
    model = build.model(FeedforwardConfig(context_size=3, width=6, embedding=4), Vocabulary(size=9)).double()
    ids = torch.tensor([[5, 6]])
    hidden, _ = model.hidden(Batch.of_text(ids, ids))
    vectors = model.embedding(ids[0])
    zeros = torch.zeros(4, dtype=torch.float64)
    assert_close(hidden[0, 0], torch.tanh(model.encoder.mix(torch.cat([zeros, zeros, vectors[0]]))))
    assert_close(hidden[0, 1], torch.tanh(model.encoder.mix(torch.cat([zeros, vectors[0], vectors[1]]))))


def test_the_simple_model_is_a_neural_bigram() -> None:
    answers = logits(NeuralBigramConfig(width=5), [3, 1, 3, 8, 3])
    assert_close(answers[0], answers[2])
    assert_close(answers[0], answers[4])
    assert not torch.allclose(answers[0], answers[1])


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (NeuralBigramConfig, {"width": 0}),
        (FeedforwardConfig, {"context_size": 0}),
        (FeedforwardConfig, {"embedding": 0}),
    ],
)
def test_sizes_below_one_are_refused(config: type, options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} must be at least 1, not 0"):
        config(**options)
