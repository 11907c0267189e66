"""Tensors with token labels: what inspection returns in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqwright.core.config import UserError
from seqwright.studies.explain.figures import Matrix, matrix, notebook_html, visible

CLASS_TOKEN = "<cls>"
"""Name of the position that a ViT puts in front of the patches."""


@dataclass(frozen=True, eq=False)
class LabeledTensor:
    """A matrix whose rows, and columns where they have names, are labeled."""

    name: str
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """The values, for NumPy and what is built on it."""
        values = self.values.detach().cpu().numpy()
        return values if dtype is None else values.astype(dtype)

    def figure(self) -> Matrix:
        return matrix(self.name, self.values, rows=self.rows, columns=self.columns, heat=True)

    def as_json(self) -> dict[str, Any]:
        return self.figure().as_json()

    def __str__(self) -> str:
        return self.figure().text()

    def _repr_html_(self) -> str:
        return notebook_html(self.figure().html())


@dataclass(frozen=True, eq=False, repr=False)
class Heads:
    """Attention weights of all layers and heads of one kind: `heads[layer, head]`, counted from 0."""

    kind: str
    """self, encoder or cross."""
    layers: Sequence[Tensor]
    """(H, T, K) of each layer; rows sum to one."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def first(self) -> int:
        """Number of the first row: <sos> is 0, and the first token that is predicted, a row of cross-attention, 1."""
        return int(self.kind == "cross")

    def __getitem__(self, at: tuple[int, int]) -> LabeledTensor:
        layer, head = at
        check_index("layer", layer, len(self.layers))
        check_index("head", head, len(self.layers[layer]))
        name = f"{self.kind} attention, layer {layer}, head {head}"
        return LabeledTensor(name, self.layers[layer][head], self.rows, self.columns)

    def __str__(self) -> str:
        queries, keys = len(self.rows), len(self.columns)
        return (
            f"{self.kind} attention: {len(self.layers)} layers × {len(self.layers[0])} heads,"
            f" {queries} × {keys} weights each (rows: {_ends(self.rows)}; columns: {_ends(self.columns)})"
        )

    def __repr__(self) -> str:
        return f"<{self}; [layer, head] selects, from 0; .mean(layer)>"

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Indices (layer, head)."""
        return ((layer, head) for layer, heads in enumerate(self.layers) for head in range(len(heads)))

    def mean(self, layer: int | None = None) -> LabeledTensor:
        """The mean over the heads of a layer, or of all layers."""
        if layer is not None:
            check_index("layer", layer, len(self.layers))
        chosen = self.layers if layer is None else [self.layers[layer]]
        values = sum(heads.mean(0) for heads in chosen) / len(chosen)
        assert isinstance(values, Tensor)
        where = "all layers" if layer is None else f"layer {layer}"
        return LabeledTensor(f"{self.kind} attention, mean of the heads of {where}", values, self.rows, self.columns)


@dataclass(frozen=True, eq=False, repr=False)
class Attention:
    """Attention weights of a forward pass by kind; `attention[layer, head]` is of the first kind."""

    kinds: dict[str, Heads]

    def __str__(self) -> str:
        first = next(iter(self.kinds), "self")
        chosen = f"select with attention[layer, head], from 0: of kind {first}"
        others = [f'attention["{kind}"][layer, head]' for kind in self.kinds if kind != first]
        return "\n".join([*map(str, self.kinds.values()), "; ".join([chosen, *others])])

    def __repr__(self) -> str:
        return str(self)

    def __getitem__(self, at: str | tuple[int, int]) -> Any:
        """`attention["cross"]`, or `attention[layer, head]`."""
        if not isinstance(at, str):
            return next(iter(self.kinds.values()))[at]
        if at not in self.kinds:
            raise UserError(f"no attention of kind '{at}'; this model has {', '.join(self.kinds)}.")
        return self.kinds[at]


def _ends(tokens: Sequence[str]) -> str:
    """The first tokens and the last."""
    shown = list(map(visible, tokens))
    return " ".join(shown if len(shown) <= 6 else [*shown[:4], "…", shown[-1]])


def check_index(axis: str, index: int, count: int) -> None:
    """Raises UserError for a layer or head that does not exist."""
    if not 0 <= index < count:
        raise UserError(f"no {axis} {index}: {axis}s go from 0 to {count - 1}.")
