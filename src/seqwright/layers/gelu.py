"""GELU (Hendrycks & Gimpel 2016); in half precision on a GPU by kernels of our own, within what that precision rounds.

With erf it is bound by arithmetic, not by memory: 175 µs forward and 231 backward for the feed-forward network of a
GPT-2 layer of 32 × 1,024 tokens on an H200, where reading and writing take 95 and 140. Where a linear layer follows,
the product of its gradient multiplies by GELU's slope itself, so that the gradient of GELU's output is never written.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers.inference.availability import has_triton

HALF = (torch.bfloat16, torch.float16)
HAS_TRITON = has_triton()


def has_kernels(x: Tensor) -> bool:
    """Whether kernels of our own compute GELU of x."""
    return HAS_TRITON and x.is_cuda and x.dtype in HALF


class GELU(nn.GELU):
    """nn.GELU, but for half precision on a GPU."""

    def forward(self, input: Tensor) -> Tensor:
        if has_kernels(input) and self.approximate == "none":
            return fused_gelu(input)
        return super().forward(input)


def joins_linear(x: Tensor, activation: nn.Module, linear: nn.Module) -> bool:
    """Whether gelu_linear computes linear(activation(x)): by kernels, for a gradient, and where calling these modules
    does what their classes do. Parametrized ones (LoRA) are of another class; hooks read or replace what passes (tensor
    parallelism, recordings)."""
    return (
        torch.is_grad_enabled()
        and has_kernels(x)
        and type(activation) is GELU
        and activation.approximate == "none"
        and type(linear) is nn.Linear
        and not any(_hooks(module) for module in (activation, linear))
    )


def _hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def gelu_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(gelu(x)) of x (..., N) in its precision, as autocast would."""
    return fused_gelu_linear(x, fused_gelu(x.detach()), weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


# Operators of their own rather than an autograd.Function: torch.compile calls them as they are, so that its partitioner
# keeps no derivative, and a compiled step can be captured.
@torch.library.custom_op("seqwright::gelu", mutates_args=(), schema="(Tensor x) -> Tensor")
def fused_gelu(x: Tensor) -> Tensor:
    """x Φ(x)."""
    from seqwright.layers import gelu_kernel

    return gelu_kernel.forward(x)


@torch.library.custom_op("seqwright::gelu_backward", mutates_args=(), schema="(Tensor x, Tensor upstream) -> Tensor")
def fused_gelu_backward(x: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of x, by that of x Φ(x)."""
    from seqwright.layers import gelu_kernel

    return gelu_kernel.backward(x, upstream)


@fused_gelu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@fused_gelu_backward.register_fake
def _(x: Tensor, upstream: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep_input(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, upstream: Tensor) -> Tensor:
    return fused_gelu_backward(*ctx.saved_tensors, upstream)


fused_gelu.register_autograd(_backward, setup_context=_keep_input)


@torch.library.custom_op(
    "seqwright::gelu_linear",
    mutates_args=(),
    schema="(Tensor x, Tensor activated, Tensor weight, Tensor? bias) -> Tensor",
)
def fused_gelu_linear(x: Tensor, activated: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear(activated), which is GELU of x: the gradient is that of x, and `activated` has none."""
    return F.linear(activated, weight, bias).contiguous()


@torch.library.custom_op(
    "seqwright::gelu_linear_backward", mutates_args=(), schema="(Tensor x, Tensor upstream, Tensor weight) -> Tensor"
)
def fused_gelu_linear_backward(x: Tensor, upstream: Tensor, weight: Tensor) -> Tensor:
    """The gradient of x, by that of linear(gelu(x))."""
    if not x.is_cuda:
        return torch.ops.aten.gelu_backward(upstream @ weight, x).contiguous()
    from seqwright.layers import gelu_kernel

    x, upstream, weight = x.contiguous(), upstream.contiguous(), weight.contiguous()
    if gelu_kernel.pays(x, upstream, weight):
        return gelu_kernel.linear_backward(x, upstream, weight)
    return gelu_kernel.backward(x, upstream @ weight)


@fused_gelu_linear.register_fake
def _(x: Tensor, activated: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.size(0))


@fused_gelu_linear_backward.register_fake
def _(x: Tensor, upstream: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    x, activated, weight, _ = inputs
    ctx.save_for_backward(x, activated, weight)


def _linear_backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    x, activated, weight = ctx.saved_tensors
    needed, _, weight_needed, bias_needed = ctx.needs_input_grad
    rows = upstream.flatten(0, -2)
    return (
        fused_gelu_linear_backward(x, upstream, weight) if needed else None,
        None,
        rows.T @ activated.flatten(0, -2) if weight_needed else None,
        rows.sum(0) if bias_needed else None,
    )


fused_gelu_linear.register_autograd(_linear_backward, setup_context=_keep_inputs)
