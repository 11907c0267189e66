"""Worked examples 4 and 5: parameters in PyTorch layout from examples.json, and how their gradients are shown."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqwright.core.storage import read_json
from seqwright.studies.explain.figures import Matrix, matrix

VOCABULARY = (*("<unk>", "<pad>", "<sos>", "chí", "cây", "có", "kẻ", "nhớ", "nên", "quả", "thì", "trồng", "ăn"),)
"""Tokens of worked example 1, by id."""


@dataclass(frozen=True)
class Example:
    """Ids, target and parameters of an example."""

    ids: list[int]
    target: int
    parameters: dict[str, Any]

    def __getitem__(self, name: str) -> Tensor:
        return torch.tensor(self.parameters[name], dtype=torch.float64)

    @property
    def tokens(self) -> list[str]:
        return [VOCABULARY[id] for id in self.ids]


@functools.cache
def example(name: str) -> Example:
    """The example `rnn` (4) or `transformer` (5)."""
    return Example(**read_json(Path(__file__).with_name("examples.json"))[name])


def defaults(name: str) -> dict[str, Any]:
    """The parameters of an example as defaults of options: vectors and matrices as tuples."""
    parameters = example(name).parameters
    return {
        key: tuple(tuple(row) if isinstance(row, list) else row for row in value) for key, value in parameters.items()
    }


def parameter_matrix(name: str, values: Any) -> Matrix:
    """A parameter or its gradient; rows of embeddings and output layers are labeled with tokens."""
    tensor = torch.as_tensor(values)
    by_token = tensor.dim() == 2 and len(tensor) == len(VOCABULARY)
    return matrix(name, tensor, rows=VOCABULARY if by_token else ())
