"""Prepacked weights: a copy of a model whose linear maps hold their weights in the order a CPU's products read them in.

Products of few rows, as a search takes at every step, otherwise spend much of their time bringing weights into that
order again: the readout of 80 rows over 32,000 words took 41 ms, packed 25.
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M")

SMALLEST = 1 << 17
"""Weights below which a product is so short that the call itself costs more than packing saves."""


class PrepackedLinear(nn.Linear):
    """A linear map for reading only: it shares the parameters it was made from, and does not notice if they change."""

    def __init__(self, plain: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach())

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")


def prepacked(model: M) -> M:
    """The same model for reading, sharing its parameters; itself where there is nothing to pack."""
    if not isinstance(model, nn.Module) or not available():
        return model
    kept = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, kept)
    for parent in [*model.modules()]:
        for name, part in parent.named_children():
            if type(part) is nn.Linear and worth_it(part.weight):
                setattr(parent, name, PrepackedLinear(part))
    return model


def available() -> bool:
    """Whether this build of PyTorch and this CPU have the products for it."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    products = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return there and products and torch.backends.cpu.get_cpu_capability().startswith("AVX")


def worth_it(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= SMALLEST
