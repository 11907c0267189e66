"""LoRA: a trained matrix stays as it is and learns a correction of low rank (Hu et al. 2022).

Applied from outside to a model that knows nothing of it, and merged before the model is kept: what is saved is a plain
model of the same shape.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from seqwright.core.config import UserError


class LowRank(nn.Module):
    """weight + scale · up down. `up` begins at zero, so that nothing changes before anything is learned."""

    def __init__(self, weight: Tensor, rank: int, scale: float):
        super().__init__()
        rows, columns = weight.shape
        self.scale = scale / rank
        self.down = nn.Parameter(torch.randn(rank, columns, device=weight.device, dtype=weight.dtype) / rank**0.5)
        self.up = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up @ self.down)


def adapt(encoder: nn.Module, *, rank: int, scale: float) -> int:
    """Freezes an encoder and gives each of its linear maps a correction to learn; how many there are."""
    encoder.requires_grad_(False)
    linear = [module for module in encoder.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError("LoRA corrects linear maps, and this model has none to correct; leave training.lora_rank out.")
    for module in linear:
        parametrize.register_parametrization(module, "weight", LowRank(module.weight, rank, scale))
    return len(linear)


def merge(model: nn.Module) -> None:
    """Adds every correction to its matrix for good: plain weights under their plain names."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
