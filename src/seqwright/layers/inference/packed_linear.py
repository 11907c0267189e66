"""Prepacked linear layers: weights in oneDNN's blocked layout, for faster CPU inference.

Matrix products with few rows, as in each decoding step, otherwise spend much of their time reordering the weights: the
output layer of 80 rows over 32,000 tokens took 41 ms, prepacked 25.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MIN_WEIGHTS = 1 << 17
"""Elements of a weight below which the overhead of the call exceeds what packing saves."""


ACTIVATIONS = {"none": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}
"""oneDNN's name and approximation of the activations that it fuses."""


class PackedLinear(nn.Linear):
    """Inference-only linear layer with prepacked weights; shares the original's parameters, but not later updates.

    An activation that follows can be fused into the product.
    """

    def __init__(self, plain: nn.Linear, activation: str = "none"):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.activation, self.approximation = ACTIVATIONS[activation]
        self.packed = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach())

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(
            input, self.packed, self.bias, self.activation, [], self.approximation
        )


def available() -> bool:
    """Whether this build of PyTorch and this CPU have oneDNN's packed kernels."""
    enabled: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    kernels = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return enabled and kernels and torch.backends.cpu.get_cpu_capability().startswith("AVX")


def should_pack(weight: Tensor) -> bool:
    """Whether packing a weight is possible and pays off."""
    return weight.device.type == "cpu" and has_kernel(weight.dtype) and weight.numel() >= MIN_WEIGHTS


def has_kernel(dtype: torch.dtype) -> bool:
    """Whether this CPU has packed kernels of a dtype; bfloat16 takes half the time of float32."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
