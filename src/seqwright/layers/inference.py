"""Models for inference: copies that share all parameters, with the layers that this device computes fastest."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any, TypeVar

import torch
from torch import nn

from seqwright.core.protocols import Ensemble
from seqwright.layers.heads import TokenHead
from seqwright.layers.packed_linear import PackedLinear, available, fuse_activation, should_pack
from seqwright.layers.transformer_stack import Stack

M = TypeVar("M")

FUSED_DTYPES = {torch.float32, torch.bfloat16, torch.float16}
"""Dtypes whose sums are float32 in fused kernels, as in PyTorch's own."""


def optimize_for_inference(model: M) -> M:
    """A copy of the model for inference that shares its parameters: packed linear layers on a CPU, fused blocks on a
    GPU, no dropout; the models of a mixture one by one. The model itself where it is no network."""
    if isinstance(model, Ensemble):
        ensemble: Any = copy.copy(model)
        ensemble.models = [optimize_for_inference(part) for part in ensemble.models]
        return ensemble
    if not isinstance(model, nn.Module):
        return model
    # deepcopy takes what is in its memo as already copied: parameters and buffers are shared.
    memo = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, memo)
    for stack in [part for part in model.modules() if isinstance(part, Stack) and can_fuse(part)]:
        from seqwright.layers.fused_block import FusedBlock  # needs Triton

        stack.blocks = nn.ModuleList(FusedBlock(block, stack.context) for block in stack.blocks)  # type: ignore[arg-type]
    for parent in [*model.modules()]:
        for name, part in [*parent.named_children()]:
            if type(part) is nn.Linear and available() and should_pack(part.weight):
                setattr(parent, name, PackedLinear(part, fuse_activation(parent, name)))
            elif type(part) is nn.Linear and isinstance(parent, TokenHead) and on_gpu(part):
                from seqwright.layers.fused_linear import FusedLinear  # needs Triton

                setattr(parent, name, FusedLinear(part))
            elif type(part) is nn.Dropout:  # the identity in inference, but a call for every layer and step
                setattr(parent, name, nn.Identity())
    return model


def can_fuse(stack: Stack) -> bool:
    """Whether fused kernels compute the decoding steps of a stack: plain linear layers, no bias by distance, residual
    connections and scaled attention."""
    linear = [module for module in stack.blocks.modules() if isinstance(module, nn.Linear)]
    usual = all(block.residual and block.attention.attend.scaled for block in stack.blocks)  # type: ignore[union-attr]
    plain = all(type(module) is nn.Linear and on_gpu(module) for module in linear)
    return usual and plain and stack.distance is None


def on_gpu(layer: nn.Linear) -> bool:
    """Whether Triton's kernels can compute a layer: in float32, or shorter on NVIDIA GPUs that have such products."""
    weight = layer.weight
    if weight.device.type != "cuda" or torch.version.hip or not importlib.util.find_spec("triton"):
        return False
    return weight.dtype in FUSED_DTYPES and torch.cuda.get_device_capability(weight.device) >= (8, 0)
