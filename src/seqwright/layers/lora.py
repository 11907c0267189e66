"""LoRA: frozen weight matrices with trainable low-rank updates (Hu et al. 2022).

Applied from outside as parametrizations, and merged into the weights before the model is saved: what is saved is a
plain model of the same shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqwright.core.config import UserError


class LowRank(nn.Module):
    """weight + (alpha / rank) · up @ down. `up` is initialized to zero, so the model is unchanged before training."""

    def __init__(self, weight: Tensor, rank: int, alpha: float):
        super().__init__()
        rows, columns = weight.shape
        self.scale = alpha / rank
        # A (down) random, B (up) zero, as in the paper.
        self.down = nn.Parameter(torch.randn(rank, columns, device=weight.device, dtype=weight.dtype) / rank**0.5)
        self.up = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


def add_lora(encoder: nn.Module, *, rank: int, alpha: float) -> int:
    """Freezes an encoder and adds a low-rank update to each of its linear layers; returns the number of layers."""
    encoder.requires_grad_(False)
    linear = [module for module in encoder.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError("LoRA adapts linear layers, and this encoder has none; leave training.lora_rank out.")
    for module in linear:
        parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank, alpha))
    return len(linear)


def merge_lora(model: nn.Module) -> None:
    """Merges the low-rank updates into the weights, which get their plain names back; no-op without LoRA."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
