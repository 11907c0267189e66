"""Worked example 5: a post-LN decoder block forward, backward and after steps of gradient descent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Vocabulary
from seqwright.models.language_model import LanguageModel
from tests.contract.kinds import configured

from .golden import descend, fill, golden, near, way_2

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
GIVEN = way_2(EXAMPLE["ids"], EXAMPLE["target"])


def ours(values: dict[str, Any]) -> dict[str, Tensor]:
    """The example's values under our names; its query, key and value maps are one matrix here."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    together = torch.cat([tensors[f"{part}.weight"] for part in ("query", "key", "value")])
    return {NAMES[name]: tensors[name] for name in NAMES} | {f"{BLOCK}.attention.query_key_value.weight": together}


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
    fill(made, ours(EXAMPLE["parameters"]))
    for name, parameter in made.named_parameters():
        if name.endswith(("query_key_value.bias", "output.bias")):  # the example's attention has none
            torch.nn.init.zeros_(parameter).requires_grad_(False)
    return made


def loss_of(model: LanguageModel) -> Tensor:
    hidden, _ = model.hidden(GIVEN)
    return model.head.loss(hidden, GIVEN.target)[0]


def test_the_attention_of_both_heads(model: LanguageModel) -> None:
    heard: list[Tensor] = []

    def listen(attend: Any, given: tuple[Tensor, ...], options: dict[str, Any]) -> None:
        query, key, _ = given
        heard.append(attend.weights(query, key, **options))

    attend = model.get_submodule(f"{BLOCK}.attention.attend")
    attend.register_forward_pre_hook(listen, with_kwargs=True)
    model(GIVEN)
    near(heard[0][0], EXAMPLE["attention"], 6)
    near(heard[0][0, 0, 3], [0.2435, 0.1449, 0.1996, 0.4120])


def test_the_probabilities_and_the_loss(model: LanguageModel) -> None:
    near(model(GIVEN)[0, -1].softmax(-1), EXAMPLE["probabilities"], 6)
    near(loss_of(model), 2.749801, 6)


def test_every_gradient(model: LanguageModel) -> None:
    loss_of(model).backward()
    expected = ours(EXAMPLE["gradients"])
    learning = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert set(learning) == set(expected)
    for name, gradient in learning.items():
        near(gradient, expected[name], 6)


def test_three_steps_of_gradient_descent(model: LanguageModel) -> None:
    for step, expected in enumerate(EXAMPLE["losses_after_sgd_0.1"]):
        model.zero_grad()
        loss_of(model).backward()
        descend(model.parameters(), 0.1)
        near(loss_of(model), expected, 6)
        if step == 0:
            near((-loss_of(model)).exp(), EXAMPLE["target_probability_after"], 6)
    near(loss_of(model), 0.2127)
