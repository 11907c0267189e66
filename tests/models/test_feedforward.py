"""Feed-forward language model: depends on exactly context_size tokens; the neural bigram on one."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from tests.contract.kinds import configured


def logits(config: object, ids: list[int]) -> torch.Tensor:
    """Logits (T, V) of a newly initialized model, always with the same seed."""
    torch.manual_seed(0)
    model = build.model(config, Vocabulary(size=9)).double()
    batch = torch.tensor([ids])
    with torch.no_grad():
        return model(Batch.of_text(batch, batch))[0]


@pytest.mark.parametrize("window", [1, 2, 4])
def test_predictions_depend_on_context_size_tokens(window: int) -> None:
    config = configured("feedforward", context_size=window, width=6, embedding=4)
    context = [1, 2, 3, 4][-window:]
    outputs = [logits(config, [*earlier, *context])[-1] for earlier in ([5, 6, 7], [8, 5, 5])]
    assert_close(outputs[0], outputs[1])
    changed = logits(config, [5, 6, 7, 8, *context[1:]])[-1]  # the oldest token of the context
    assert not torch.allclose(changed, outputs[0])


def test_context_before_the_first_token_is_zero() -> None:
    torch.manual_seed(0)
    model = build.model(configured("feedforward", context_size=3, width=6, embedding=4), Vocabulary(size=9)).double()
    ids = torch.tensor([[5, 6]])
    hidden, _ = model.hidden(Batch.of_text(ids, ids))
    vectors = model.embedding(ids[0])
    zeros = torch.zeros(4, dtype=torch.float64)
    assert_close(hidden[0, 0], torch.tanh(model.encoder.mix(torch.cat([zeros, zeros, vectors[0]]))))
    assert_close(hidden[0, 1], torch.tanh(model.encoder.mix(torch.cat([zeros, vectors[0], vectors[1]]))))


def test_neural_bigram_depends_on_the_last_token_alone() -> None:
    outputs = logits(configured("neural-bigram", width=5), [3, 1, 3, 8, 3])
    assert_close(outputs[0], outputs[2])
    assert_close(outputs[0], outputs[4])
    assert not torch.allclose(outputs[0], outputs[1])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("neural-bigram", {"width": 0}),
        ("feedforward", {"context_size": 0}),
        ("feedforward", {"embedding": 0}),
    ],
)
def test_sizes_below_one_are_refused(kind: str, options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} must be at least 1, not 0"):
        configured(kind, **options)
