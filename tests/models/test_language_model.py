"""Language model: tied embeddings, context length, and the flatten readout (the lectures' second way)."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

BATCH = Batch.of_text(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), torch.tensor([[2, 3, 4, 5], [6, 7, IGNORE, IGNORE]]))
FLAT = [
    configured("rnn", width=6, readout="flatten", length=7),
    configured("gpt", width=6, heads=2, layers=2, context=7, tied=False, readout="flatten"),
]


def fresh(config: object) -> LanguageModel:
    torch.manual_seed(0)
    return build.model(config, Vocabulary(size=9)).double()


def test_tied_embedding_is_one_matrix() -> None:
    model = fresh(configured("gpt", width=8, heads=2))
    assert model.head.readout.weight is model.embedding.weight
    assert model.head.readout.bias is None
    model(BATCH).sum().backward()
    untied = fresh(configured("gpt", width=8, heads=2, tied=False))
    untied.load_state_dict(model.state_dict())
    untied(BATCH).sum().backward()
    assert_close(model.embedding.weight.grad, untied.embedding.weight.grad + untied.head.readout.weight.grad)


def test_context_length_is_that_of_the_encoder() -> None:
    assert fresh(configured("gpt", width=8, heads=2, context=5)).context == 5
    assert fresh(configured("gru", width=8)).context is None
    assert [fresh(config).context for config in FLAT] == [7, 7]


@pytest.mark.parametrize("config", FLAT, ids=["rnn", "gpt"])
def test_flatten_readout_has_all_hidden_states_so_far_and_zeros(config: object) -> None:
    model = fresh(config)
    flat, _ = model.hidden(BATCH)  # (B, T, 7 * 6)
    vectors, _ = model.encoder.encoder(model.embedding(BATCH.input))  # (B, T, 6)
    for t in range(4):
        expected = torch.zeros(2, 7, 6, dtype=torch.float64)
        expected[:, : t + 1] = vectors[:, : t + 1]
        assert_close(flat[:, t], expected.flatten(1))


@pytest.mark.parametrize("config", FLAT, ids=["rnn", "gpt"])
def test_flatten_readout_padding_has_no_gradient(config: object) -> None:
    model = fresh(config)
    hidden, _ = model.hidden(BATCH)
    model.head.loss(hidden, BATCH.target)[0].backward()
    gradient = model.head.readout.weight.grad.view(9, 7, 6)  # (V, length, D)
    assert (gradient[:, 4:] == 0).all()
    assert (gradient[:, :4] != 0).any(-1).all()
