"""Forward and backward pass on the meta device: memory over time, arithmetic and memory traffic of every operation,
without memory or arithmetic (decision 189)."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from seqwright.core.batch import Batch
from seqwright.training import machine

ALLOCATED = 512
"""Bytes of which PyTorch's allocators hand out multiples, on a GPU."""
LOWERED = {F.linear, F.conv1d, F.scaled_dot_product_attention, torch.matmul, torch.bmm, Tensor.matmul, torch.baddbmm}
"""Functions whose operands autocast casts to half precision."""


LOSS = "cross_entropy"
"""Name of the operation that makes losses and gradients of logits."""


@dataclass(frozen=True)
class Operation:
    """A kernel: its floating-point operations, where it is a matrix product or attention, and the bytes it moves."""

    name: str
    flops: int
    traffic: int


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """Passes over one micro-batch, from ids to hidden states and back; the loss is not part of it."""

    operations: tuple[Operation, ...]
    kept: int
    """Bytes that autograd keeps after the forward pass: activations."""
    weight_copies: int
    """And the half-precision copies of weights that autocast makes."""
    peak: int
    """Bytes at most, in the backward pass mostly: activations, copies of weights and gradients."""
    gradients: int
    """Bytes of gradients after the backward pass."""
    targets: int
    """Positions that the loss is taken of."""


def trace_step(model: nn.Module, batch: Batch, *, half: bool, checkpointed: bool = False) -> StepTrace:
    """The trace of a model on the meta device. Attention is PyTorch's fused kernel, which keeps no weights."""
    model, batch = model.to("meta").train(), batch.to("meta")
    tracer, autocast = _Tracer(), _Autocast(half)
    for block in machine.transformer_blocks(model):
        block.forward = functools.partial(autocast.block, block.forward)
    if checkpointed:
        machine.checkpoint_blocks(model)
    with tracer:
        with autocast:
            hidden, _ = model.hidden(batch, None)  # type: ignore[operator]
        kept = tracer.live
        hidden.backward(torch.empty_like(hidden))
    copies = sum(each.nbytes for each in autocast.copies.values())
    autocast.copies.clear()
    del hidden
    return StepTrace(
        operations=tuple(tracer.operations),
        kept=kept - copies,
        weight_copies=copies,
        peak=tracer.peak,
        gradients=tracer.live,
        targets=batch.target.numel(),
    )


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operations, and the bytes of the storages that they allocate while these are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self.operations: list[Operation] = []
        self.storages: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        outputs = _tensors(output)
        allocated = [self._allocate(tensor) for tensor in outputs]
        if any(allocated) or func._schema.is_mutable:  # a view moves nothing
            traffic = sum(tensor.nbytes for tensor in (*_tensors((args, kwargs)), *outputs))
            count = flop_registry.get(func.overloadpacket)
            flops = count(*args, **kwargs, out_val=output) if count else 0
            self.operations.append(Operation(func.overloadpacket.__name__, flops, traffic))
        return output

    def _allocate(self, tensor: Tensor) -> bool:
        """Counts a tensor's storage until it is freed; whether it is a new one."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.storages:
            return False
        self.storages[key] = size = -(-storage.nbytes() // ALLOCATED) * ALLOCATED
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key)
        return True

    def _free(self, key: int) -> None:
        self.live -= self.storages.pop(key)


class _Autocast(TorchFunctionMode):
    """Autocast to bf16 as on a GPU, and its fused attention, which the meta device has neither of."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half = half
        self.copies: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self.half and func in LOWERED:
            args, kwargs = [self._lowered(each) for each in args], {k: self._lowered(v) for k, v in kwargs.items()}
        elif self.half and func is F.layer_norm:
            args = [each.float() if isinstance(each, Tensor) else each for each in args]
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        return func(*args, **kwargs)

    def block(self, forward: Callable[..., Tensor], hidden: Tensor, *arguments: Any, **options: Any) -> Tensor:
        """The forward pass of a Transformer block, also where it is recomputed; its input as of `autocast_dtype`."""
        with self:
            return forward(hidden.to(torch.bfloat16) if self.half else hidden, *arguments, **options)

    def _lowered(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(torch.bfloat16)
        if id(value) not in self.copies:  # weights are cast once
            self.copies[id(value)] = value.to(torch.bfloat16)
        return self.copies[id(value)]


def _attention(
    query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor | None = None, is_causal: bool = False, **_: Any
) -> Tensor:
    """Fused attention: without a mask the flash kernel, which alone the meta device knows by shape."""
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    output: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal)[0]
    return output


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_iter(values) if isinstance(value, Tensor)]
