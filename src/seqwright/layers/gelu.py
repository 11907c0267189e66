"""GELU (Hendrycks & Gimpel 2016); in compiled steps of half precision by a logistic function as close as that can tell.

x Φ(x) of a feed-forward network is bound by the arithmetic of erf, not by memory: 175 µs of a 124M GPT-2's layer on an
H200, of which reading and writing take 95.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS = (1.5956562721698697, 0.07293758070889303, -2.4972238795080177e-4, -6.116220024943171e-5, 2.238175790319957e-6)
"""Of q in Φ(x) ≈ σ(x q(min(x², 25))), fitted so that x Φ(x) is within 3.1e-6 everywhere; bf16 rounds 1 to 3.9e-3."""
LIMIT = 25.0
HALF = (torch.bfloat16, torch.float16)


class GELU(nn.GELU):
    """nn.GELU, but for compiled half precision."""

    def forward(self, input: Tensor) -> Tensor:
        if self.approximate == "none" and input.dtype in HALF and torch.compiler.is_compiling():
            output: Tensor = LogisticGELU.apply(input)  # type: ignore[no-untyped-call]
            return output
        return super().forward(input)


class LogisticGELU(torch.autograd.Function):
    """x Φ(x), and its derivative Φ(x) + x φ(x), in operations that a compiler fuses; both in float32."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        wide = x.float()
        return (wide * normal_cdf(wide)).to(x.dtype)

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> Any:
        (x,) = context.saved_tensors
        wide = x.float()
        density = 0.3989422804014327 * torch.exp(-0.5 * wide * wide)
        return (upstream.float() * (normal_cdf(wide) + wide * density)).to(x.dtype)


def normal_cdf(x: Tensor) -> Tensor:
    """Φ(x), approximately."""
    square = (x * x).clamp(max=LIMIT)
    factor = torch.full_like(x, COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2::-1]:
        factor = factor * square + coefficient
    return torch.sigmoid(x * factor)
