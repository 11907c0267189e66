"""The lectures' examples as they were computed by hand, and how their numbers are compared."""

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
    """Ids, parameters and results of example 4 (`rnn`) or 5 (`transformer`)."""
    return json.loads(Path(__file__).with_name("worked-examples.json").read_text(encoding="utf-8"))[name]


def near(actual: Tensor, expected: object, digits: int = 4) -> None:
    """Equal to as many decimals as were printed."""
    assert_close(actual.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=0.6 * 10**-digits)


def way_2(ids: list[int], target: int) -> Batch:
    """One row whose last position alone is asked for its successor."""
    return Batch.of_text(torch.tensor([ids]), torch.tensor([[IGNORE] * (len(ids) - 1) + [target]]))


def fill(model: nn.Module, parameters: dict[str, Tensor]) -> None:
    """Puts these values into parameters of these names; every name must exist and have that shape."""
    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in parameters.items():
            assert named[name].shape == value.shape, name
            named[name].copy_(value)


def descend(parameters: Iterable[nn.Parameter], rate: float) -> None:
    """One step of plain gradient descent on these parameters; every gradient is forgotten."""
    torch.optim.SGD(parameters, lr=rate).step()
