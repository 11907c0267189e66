"""Prepacked weights: a copy of a model whose linear maps hold their weights in the order a CPU's products read them in.

Products of few rows, as a search takes at every step, otherwise spend much of their time bringing weights into that
order again: the readout of 80 rows over 32,000 words took 41 ms, packed 25.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M")

SMALLEST = 1 << 17
"""Weights below which a product is so short that the call itself costs more than packing saves."""


class PackedLinear(nn.Linear):
    """A linear map for reading only: it shares the parameters it was made from, and does not notice if they change.

    A nonlinearity after it can be part of the product, which then leaves each output as it should be at once.
    """

    def __init__(self, plain: nn.Linear, after: tuple[str, str] = ("none", "")):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.after, self.form = after
        self.packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach())

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, self.after, [], self.form)


def packed(model: M) -> M:
    """The same model for reading, sharing its parameters, part by part for a mixture; itself where there is nothing to
    pack."""
    if not available():
        return model
    if isinstance(parts := getattr(model, "models", None), list):
        mixed: Any = copy.copy(model)
        mixed.models = [packed(part) for part in parts]
        return mixed
    if not isinstance(model, nn.Module):
        return model
    kept = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, kept)
    for parent in [*model.modules()]:
        for name, part in [*parent.named_children()]:
            if type(part) is nn.Linear and worth_it(part.weight):
                setattr(parent, name, PackedLinear(part, _take_over(parent, name)))
    return model


def _take_over(parent: nn.Module, name: str) -> tuple[str, str]:
    """The nonlinearity that follows a map of a sequence, by its name and form in oneDNN, and that is left out of it."""
    names = [*parent._modules]
    following = names.index(name) + 1
    if not isinstance(parent, nn.Sequential) or following == len(names):
        return "none", ""
    match then := parent._modules[names[following]]:
        case nn.ReLU():
            after = "relu", ""
        case nn.GELU():
            after = "gelu", then.approximate
        case _:
            return "none", ""
    parent._modules[names[following]] = nn.Identity()
    return after


def available() -> bool:
    """Whether this build of PyTorch and this CPU have the products for it."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    products = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return there and products and torch.backends.cpu.get_cpu_capability().startswith("AVX")


def worth_it(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and multiplied(weight.dtype) and weight.numel() >= SMALLEST


def multiplied(dtype: torch.dtype) -> bool:
    """Whether this CPU has products of these numbers; those of bfloat16 take half the time of float32's."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
