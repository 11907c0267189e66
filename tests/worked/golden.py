"""Golden values of the lectures' worked examples, and helpers to compare with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seqwright.core.batch import IGNORE, Batch


def golden(name: str) -> dict[str, Any]:
    """Ids, parameters and expected values of example 4 (`rnn`) or 5 (`transformer`)."""
    return json.loads(Path(__file__).with_name("worked-examples.json").read_text(encoding="utf-8"))[name]


def near(actual: Tensor, expected: object, digits: int = 4) -> None:
    """Asserts equality to `digits` decimals, as many as the lectures print."""
    assert_close(actual.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=0.6 * 10**-digits)


def last_position_batch(ids: list[int], target: int) -> Batch:
    """One row with loss at its last position only ("way 2" of the lectures)."""
    return Batch.of_text(torch.tensor([ids]), torch.tensor([[IGNORE] * (len(ids) - 1) + [target]]))


def set_parameters(model: nn.Module, parameters: dict[str, Tensor]) -> None:
    """Sets parameters by name; every name must exist with the shape of its value."""
    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in parameters.items():
            assert named[name].shape == value.shape, name
            named[name].copy_(value)


def sgd_step(parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
    """One step of plain SGD."""
    torch.optim.SGD(parameters, lr=learning_rate).step()
