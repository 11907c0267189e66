"""Models for inference: copies that share all parameters, with the layers that this device computes fastest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch
from torch import nn

from seqwright.core.protocols import Ensemble
from seqwright.layers.heads import TokenHead
from seqwright.layers.inference import native_linear, packed_linear
from seqwright.layers.inference.availability import has_triton
from seqwright.layers.inference.int8_linear import Int8Linear
from seqwright.layers.inference.native_block import NativeBlocks
from seqwright.layers.inference.native_linear import NativeLinear, NativeTokenHead, PanelMemory
from seqwright.layers.inference.packed_linear import PackedLinear, available, should_pack
from seqwright.layers.transformer_block import activation_name
from seqwright.layers.transformer_stack import Blocks, Stack

M = TypeVar("M")

FUSED_DTYPES = {torch.float32, torch.bfloat16, torch.float16}
"""Dtypes whose sums are float32 in fused kernels, as in PyTorch's own."""


def optimize_for_inference(model: M) -> M:
    """A copy of the model for inference that shares its parameters: compiled or packed linear layers and blocks on a
    CPU, fused blocks on a GPU, no dropout; the models of a mixture one by one. The model itself where it is no
    network."""
    if isinstance(model, Ensemble):
        ensemble: Any = copy.copy(model)
        ensemble.models = [optimize_for_inference(part) for part in ensemble.models]
        return ensemble
    if not isinstance(model, nn.Module):
        return model
    # deepcopy takes what is in its memo as already copied: parameters and buffers are shared.
    memo = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, memo)
    for parent, name, _ in [entry for entry in _parts(model) if type(entry[2]) is nn.Dropout]:
        setattr(parent, name, nn.Identity())  # the identity in inference, but a call for every layer and step
    _fuse_blocks(model)
    _compile_blocks(model)
    for parent, name, part in _parts(model):
        if type(part) is nn.Linear and available() and should_pack(part.weight):
            setattr(parent, name, PackedLinear(part, fuse_activation(parent, name, packed_linear.ACTIVATIONS)))
        elif type(part) is TokenHead and on_gpu(part.readout):
            from seqwright.layers.inference.fused_linear import FusedTokenHead  # needs Triton

            setattr(parent, name, FusedTokenHead(part))
    return model


def _parts(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Every module with its parent and its name there."""
    return [(parent, name, part) for parent in model.modules() for name, part in parent.named_children()]


def _fuse_blocks(model: nn.Module) -> None:
    """Replaces the blocks of stacks on a GPU by fused ones."""
    for stack in [part for part in model.modules() if isinstance(part, Stack) and can_fuse(part, on_gpu)]:
        from seqwright.layers.inference.fused_block import FusedBlock  # needs Triton

        stack.blocks = Blocks(FusedBlock(block, stack.context) for block in stack.blocks)  # type: ignore[arg-type]


def _compile_blocks(model: nn.Module) -> None:
    """Replaces linear layers, and the blocks and heads that consist of them, by compiled ones where this CPU has a
    compiler."""
    stacks = [part for part in model.modules() if isinstance(part, Stack) and can_fuse(part, native_linear.has_kernel)]
    in_blocks = {id(module) for stack in stacks for module in stack.blocks.modules()}
    layers = [
        (parent, name, part)
        for parent, name, part in _parts(model)
        if isinstance(part, nn.Linear)
        and native_linear.has_kernel(part)
        and (id(part) in in_blocks or isinstance(part, Int8Linear) or should_pack(part.weight))
    ]
    if not layers:
        return
    memory = PanelMemory([part for _, _, part in layers])
    for parent, name, part in layers:
        setattr(parent, name, NativeLinear(part, memory, fuse_activation(parent, name, native_linear.ACTIVATIONS)))
    for stack in stacks:
        stack.blocks = NativeBlocks(stack)
    for parent, name, head in _parts(model):
        if type(head) is TokenHead and isinstance(head.readout, NativeLinear):
            setattr(parent, name, NativeTokenHead(head))


def fuse_activation(parent: nn.Module, name: str, known: Collection[str]) -> str:
    """The activation after a layer of an nn.Sequential, from which it is removed; "none" where it is not known."""
    names = [*parent._modules]
    following = names.index(name) + 1
    if not isinstance(parent, nn.Sequential) or following == len(names):
        return "none"
    activation = activation_name(parent._modules[names[following]])
    if activation is None or activation not in known:
        return "none"
    parent._modules[names[following]] = nn.Identity()
    return activation


def can_fuse(stack: Stack, has_kernel: Callable[[nn.Linear], bool]) -> bool:
    """Whether fused kernels compute the decoding steps of a stack: linear layers that have one, no bias by distance,
    residual connections and scaled attention."""
    linear = [module for module in stack.blocks.modules() if isinstance(module, nn.Linear)]
    usual = all(block.residual and block.attention.attend.scaled for block in stack.blocks)  # type: ignore[union-attr]
    return usual and all(map(has_kernel, linear)) and stack.distance is None


def on_gpu(layer: nn.Linear) -> bool:
    """Whether Triton's kernels can compute a layer: in float32, or shorter on NVIDIA GPUs that have such products."""
    weight = layer.weight
    if type(layer) is not nn.Linear or weight.device.type != "cuda" or not has_triton():
        return False
    return weight.dtype in FUSED_DTYPES and torch.cuda.get_device_capability(weight.device) >= (8, 0)
