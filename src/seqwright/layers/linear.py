"""Linear layers in training on a CPU: float32 products by oneDNN where MKL, PyTorch's library, uses half the processor.

MKL takes its AVX-512 code on Intel's processors only. On others that have it, a Zen 5 reaches 105 GFLOP/s with MKL and
240 with oneDNN, on one core, and products are 70 to 85 % of the step of a small GPT.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqwright.layers.inference import packed_linear

MIN_PRODUCT = 1 << 21
"""Multiplications below which calling Python in the backward pass takes as long as oneDNN saves."""


@functools.cache
def prefers_onednn() -> bool:
    """Whether oneDNN has wider instructions than MKL for this processor."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not packed_linear.available():
        return False
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "GenuineIntel" not in processor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As F.linear."""
    if has_kernel(x, weight):
        return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return F.linear(x, weight, bias)


def has_kernel(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes a linear layer and its gradient."""
    return (
        weight.requires_grad
        and not torch.compiler.is_compiling()  # Inductor cannot lower the operator, and has products of its own
        and torch.is_grad_enabled()
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() > 1
        and x.numel() * len(weight) >= MIN_PRODUCT
        and prefers_onednn()
        and not torch.is_autocast_enabled("cpu")
        and type(x) is Tensor
        and type(weight) in (Tensor, nn.Parameter)  # neither sharded nor traced
    )


def use_in(module: nn.Module) -> None:
    """Has the linear layers of a module call `linear`."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.forward = functools.partial(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, layer.weight, layer.bias)


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a · bᵀ + bias for a (…, K) and b (M, K) by oneDNN, which copies `a` where it is transposed, but not b."""
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.contiguous()
        context.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = context.saved_tensors
        x_needed, weight_needed, bias_needed = context.needs_input_grad
        upstream = upstream.contiguous()
        outputs, rows = upstream.flatten(0, -2), x.flatten(0, -2)  # (N, M), (N, K)
        gradient = None
        if weight_needed and rows.numel() + weight.numel() < outputs.numel():  # what is copied
            gradient = product(rows.T, outputs.T).T
        elif weight_needed:
            gradient = product(outputs.T, rows.T)
        return (
            product(upstream, weight.T) if x_needed else None,
            gradient,
            outputs.sum(0) if bias_needed else None,
        )
