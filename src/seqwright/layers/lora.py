"""LoRA: frozen weight matrices with trainable low-rank updates (Hu et al. 2022).

Applied from outside as parametrizations, and merged into the weights before the model is saved: what is saved is a
plain model of the same shapes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqwright.core.config import UserError
from seqwright.layers.elman import Elman
from seqwright.layers.mogrifier import MogrifierLSTM

TRAINED_IN_FULL = ("embedding", "source_embedding", "target_embedding", "pooling", "body", "head")
"""Children of a model whose parameters have no low-rank update: they belong to the task, or look up tokens."""
ADAPTED = (nn.Linear, nn.Conv1d, nn.RNNBase, Elman, MogrifierLSTM)
"""Layers whose weight matrices have one."""


class LowRank(nn.Module):
    """weight + (alpha / rank) · up @ down. `up` is initialized to zero, so the model is unchanged before training."""

    def __init__(self, weight: Tensor, rank: int, alpha: float):
        super().__init__()
        rows, columns = len(weight), weight[0].numel()  # kernels of a convolution are flattened
        self.scale = alpha / rank
        # A (down) random, B (up) zero, as in the paper.
        self.down = nn.Parameter(torch.randn(rank, columns, device=weight.device, dtype=weight.dtype) / rank**0.5)
        self.up = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down).view_as(weight)


def add_lora(model: nn.Module, *, rank: int, alpha: float) -> int:
    """Freezes a model, except embeddings and head, and adds a low-rank update to each weight matrix of its linear,
    convolutional and recurrent layers; returns the number of matrices."""
    adapted = [child for name, child in model.named_children() if name not in TRAINED_IN_FULL]
    for child in adapted:
        child.requires_grad_(False)
    layers = [module for child in adapted for module in child.modules() if isinstance(module, ADAPTED)]
    matrices = [
        (layer, name)
        for layer in layers
        for name, parameter in layer.named_parameters(recurse=False)
        if parameter.dim() > 1
    ]
    if not matrices:
        raise UserError("LoRA adapts weight matrices, and this encoder has none; leave training.lora_rank out.")
    for layer, name in matrices:
        parametrize.register_parametrization(layer, name, LowRank(layer.get_parameter(name), rank, alpha))
    for layer in layers:
        if isinstance(layer, nn.RNNBase):
            # torch.nn runs these with a list of weights, which must be the current ones; the class is the layer's own,
            # made by the parametrization.
            type(layer)._flat_weights = property(_weights, _ignore)  # type: ignore[assignment]
    return len(matrices)


def merge_lora(model: nn.Module) -> None:
    """Merges the low-rank updates into the weights, which get their plain names back; no-op without LoRA."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
            if isinstance(module, nn.RNNBase):
                module._flat_weights = _weights(module)


def _weights(layer: nn.RNNBase) -> list[Any]:
    return [getattr(layer, name) for name in layer._flat_weights_names]


def _ignore(layer: nn.RNNBase, weights: list[Any]) -> None:
    """torch.nn lists them anew when they are moved."""
