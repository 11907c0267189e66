"""Worked examples 4 and 7: forward, backward and SGD step of an Elman RNN; an LSTM and linear RNNs by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.models.encoders.recurrent import ElmanConfig, LSTMConfig, RecurrentEncoder
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

from .golden import golden, last_position_batch, near, set_parameters, sgd_step

EXAMPLE = golden("rnn")
NAMES = {
    "embedding.weight": "embedding.weight",
    "rnn.weight_ih": "encoder.encoder.network.weight_ih_l0",
    "rnn.weight_hh": "encoder.encoder.network.weight_hh_l0",
    "rnn.bias_ih": "encoder.encoder.network.bias_ih_l0",
    "rnn.bias_hh": "encoder.encoder.network.bias_hh_l0",
    "readout.weight": "head.readout.weight",
    "readout.bias": "head.readout.bias",
}
BATCH = last_position_batch(EXAMPLE["ids"], EXAMPLE["target"])


@pytest.fixture
def model() -> LanguageModel:
    config = configured("rnn", width=4, readout="flatten", length=4)
    made = build.model(config, Vocabulary(size=13)).double()
    parameters = EXAMPLE["parameters"]
    set_parameters(made, {NAMES[name]: torch.tensor(value, dtype=torch.float64) for name, value in parameters.items()})
    return made


def loss_of(model: LanguageModel) -> Tensor:
    hidden, _ = model.hidden(BATCH)
    total, count = model.head.loss(hidden, BATCH.target)
    assert count == 1
    return total


def test_elman_hidden_states(model: LanguageModel) -> None:
    hidden, _ = model.hidden(BATCH)
    near(hidden[0, -1].view(4, 4), EXAMPLE["hidden"], 6)


def test_elman_probabilities_and_loss(model: LanguageModel) -> None:
    probabilities = model(BATCH)[0, -1].softmax(-1)
    near(probabilities, EXAMPLE["probabilities"], 6)
    near(loss_of(model), 2.588474, 6)


def test_elman_gradients(model: LanguageModel) -> None:
    loss_of(model).backward()
    named = dict(model.named_parameters())
    assert set(named) == set(NAMES.values())
    for name, expected in EXAMPLE["gradients"].items():
        gradient = named[NAMES[name]].grad
        assert gradient is not None
        near(gradient, expected, 6)
    near(named[NAMES["rnn.weight_hh"]].grad[0], [0.0896, -0.0204, 0.0843, 0.0201])


@pytest.mark.parametrize(
    ("trained", "loss"),
    [
        ("encoder.", 2.505397),
        (("encoder.", "head."), 1.894523),
        ("", 1.892993),
    ],
)
def test_elman_loss_after_an_sgd_step(model: LanguageModel, trained: str | tuple[str, ...], loss: float) -> None:
    loss_of(model).backward()
    sgd_step([p for name, p in model.named_parameters() if name.startswith(trained)], 0.1)
    near(loss_of(model), loss, 6)


def test_elman_target_probability_after_an_sgd_step(model: LanguageModel) -> None:
    loss_of(model).backward()
    sgd_step(model.parameters(), 0.1)
    near((-loss_of(model)).exp(), EXAMPLE["target_probability_after"], 6)
    near((-loss_of(model)).exp(), 0.1506)


@pytest.mark.parametrize(
    ("forget_bias", "cells", "hiddens"),
    [
        (0.0, [0.5568, -0.0005, 0.2872], [0.3696, -0.0002, 0.1740]),
        (1.0, [0.5568, 0.1353, 0.4270], [0.3696, 0.0467, 0.2551]),
    ],
)
def test_lstm_of_one_unit_with_forget_bias(forget_bias: float, cells: list[float], hiddens: list[float]) -> None:
    encoder = RecurrentEncoder(LSTMConfig(width=1, forget_bias=forget_bias))
    network = encoder.network
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.startswith("weight"):
                parameter.fill_(1.0)
            else:
                parameter[[0, 2, 3]] = 0.0  # all biases but the forget gate's, which the config sets
    state = encoder.start(1, 3, network.weight_ih_l0)
    for x, cell, hidden in zip([1.0, -1.0, 0.5], cells, hiddens, strict=True):
        output, state = encoder(torch.tensor([[[x]]]), state)
        near(state.cell.flatten(), [cell])
        near(output.flatten(), [hidden])


def linear_rnn(input_weights: list[float]) -> RecurrentEncoder:
    """h_t = w · x_t + h_(t-1)."""
    config = ElmanConfig(width=1, embedding=len(input_weights), activation="linear")
    encoder = RecurrentEncoder(config).double()
    zero, one = torch.zeros(1), torch.ones(1, 1)
    set_parameters(encoder.network, {"weight_ih_l0": torch.tensor([input_weights]), "weight_hh_l0": one})
    set_parameters(encoder.network, {"bias_ih_l0": zero, "bias_hh_l0": zero})
    return encoder


def test_linear_rnn_sums_its_inputs() -> None:
    totals, _ = linear_rnn([1.0])(torch.tensor([[[2.0], [-0.5], [1.0], [1.0]]], dtype=torch.float64))
    near(totals.flatten(), [2, 1.5, 2.5, 3.5], 12)


def test_linear_rnn_compares_two_sums() -> None:
    pairs = torch.tensor([[[2.0, -2.0], [0.0, 3.5], [1.0, 2.2]]], dtype=torch.float64)
    difference, _ = linear_rnn([1.0, -1.0])(pairs)
    near(torch.sigmoid(5 * difference).flatten(), [1.0000, 0.9241, 0.0293])


def test_way_3_without_a_readout_takes_hidden_states_as_logits() -> None:
    """Hidden size = vocabulary: the softmax of h_t is the distribution of the next token."""
    model = build.model(configured("rnn", width=4, embedding=3, readout="none"), Vocabulary(size=4)).double()
    x = torch.tensor([[-0.88, 0.81, 0.77], [-1.27, 0.84, 0.04], [0.5, 0.1, -0.3], [0.0, 0.2, 0.4]])
    set_parameters(model, {"embedding.weight": x.double()})
    network = model.encoder.network
    ids = torch.tensor([[0, 1]])
    hidden, expected = torch.zeros(4, dtype=torch.float64), []
    for vector in x[:2].double():
        hidden = torch.tanh(
            network.weight_ih_l0 @ vector + network.weight_hh_l0 @ hidden + network.bias_ih_l0 + network.bias_hh_l0
        )
        expected.append(hidden)
    batch = Batch.of_text(ids, torch.tensor([[1, 3]]))
    near(model(batch)[0], torch.stack(expected).tolist(), 12)
    near(model.score(batch)[0][0], torch.stack(expected).log_softmax(-1)[[0, 1], [1, 3]].tolist(), 12)
    assert sum(p.numel() for p in model.parameters()) == 4 * 3 + 4 * 3 + 4 * 4 + 2 * 4
    with pytest.raises(UserError, match=r"set model\.width to 13"):
        build.model(configured("rnn", width=4, readout="none"), Vocabulary(size=13))
