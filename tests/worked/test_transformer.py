"""Worked example 5: forward, backward and SGD steps of a post-LN decoder block."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Vocabulary
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

from .golden import golden, last_position_batch, near, set_parameters, sgd_step

EXAMPLE = golden("transformer")
BLOCK = "encoder.encoder.blocks.0"
NAMES = {
    "embedding.weight": "embedding.weight",
    "output.weight": f"{BLOCK}.attention.output.weight",
    "up.weight": f"{BLOCK}.feed_forward.up.weight",
    "up.bias": f"{BLOCK}.feed_forward.up.bias",
    "down.weight": f"{BLOCK}.feed_forward.down.weight",
    "down.bias": f"{BLOCK}.feed_forward.down.bias",
    "norm1.weight": f"{BLOCK}.attention_norm.weight",
    "norm1.bias": f"{BLOCK}.attention_norm.bias",
    "norm2.weight": f"{BLOCK}.feed_forward_norm.weight",
    "norm2.bias": f"{BLOCK}.feed_forward_norm.bias",
    "readout.weight": "head.readout.weight",
    "readout.bias": "head.readout.bias",
}
BATCH = last_position_batch(EXAMPLE["ids"], EXAMPLE["target"])


def by_parameter_name(values: dict[str, Any]) -> dict[str, Tensor]:
    """The example's values by parameter name; its query, key and value projections are one matrix here."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    query_key_value = torch.cat([tensors[f"{part}.weight"] for part in ("query", "key", "value")])
    return {NAMES[name]: tensors[name] for name in NAMES} | {
        f"{BLOCK}.attention.query_key_value.weight": query_key_value
    }


@pytest.fixture
def model() -> LanguageModel:
    config = configured(
        "gpt",
        layers=1,
        width=4,
        heads=2,
        context=4,
        ffn_width=8,
        positions="none",
        norm_position="post",
        tied=False,
        readout="flatten",
    )
    made = build.model(config, Vocabulary(size=13)).double()
    set_parameters(made, by_parameter_name(EXAMPLE["parameters"]))
    for name, parameter in made.named_parameters():
        if name.endswith(("query_key_value.bias", "output.bias")):  # the example's attention has none
            torch.nn.init.zeros_(parameter).requires_grad_(False)
    return made


def loss_of(model: LanguageModel) -> Tensor:
    hidden, _ = model.hidden(BATCH)
    return model.head.loss(hidden, BATCH.target)[0]


def test_transformer_attention_weights_of_both_heads(model: LanguageModel) -> None:
    recorded: list[Tensor] = []

    def hook(attend: Any, inputs: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        query, key, _ = inputs
        recorded.append(attend.weights(query, key, **options))

    attend = model.get_submodule(f"{BLOCK}.attention.attend")
    attend.register_forward_pre_hook(hook, with_kwargs=True)
    model(BATCH)
    near(recorded[0][0], EXAMPLE["attention"], 6)
    near(recorded[0][0, 0, 3], [0.2435, 0.1449, 0.1996, 0.4120])


def test_transformer_probabilities_and_loss(model: LanguageModel) -> None:
    near(model(BATCH)[0, -1].softmax(-1), EXAMPLE["probabilities"], 6)
    near(loss_of(model), 2.749801, 6)


def test_transformer_gradients(model: LanguageModel) -> None:
    loss_of(model).backward()
    expected = by_parameter_name(EXAMPLE["gradients"])
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert set(gradients) == set(expected)
    for name, gradient in gradients.items():
        near(gradient, expected[name], 6)


def test_transformer_losses_of_three_sgd_steps(model: LanguageModel) -> None:
    for step, expected in enumerate(EXAMPLE["losses_after_sgd_0.1"]):
        model.zero_grad()
        loss_of(model).backward()
        sgd_step(model.parameters(), 0.1)
        near(loss_of(model), expected, 6)
        if step == 0:
            near((-loss_of(model)).exp(), EXAMPLE["target_probability_after"], 6)
    near(loss_of(model), 0.2127)
