"""A training step in plain PyTorch, as tutorials write it: autocast, backward, gradient clipping, optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where and how a peer is trained; weights and optimizer state are float32 in any case."""

    device: torch.device
    dtype: torch.dtype = torch.float32
    """Of autocast: float32 is none."""
    compile: bool = False

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype != torch.float32)

    def move(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors on the device; to a GPU from pinned memory, so that the copy runs beside the computation."""
        if self.device.type == "cuda":
            return tuple(tensor.pin_memory().to(self.device, non_blocking=True) for tensor in tensors)
        return tensors


def adamw(model: nn.Module, options: Options, *, learning_rate: float, betas: tuple[float, float]) -> torch.optim.AdamW:
    """AdamW with weight decay of matrices only; fused on a GPU, as nanoGPT has it."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    fused = {"fused": True} if options.device.type == "cuda" else {}
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **fused)


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, next_loss: Callable[[], Any], options: Options
) -> Step:
    """One optimizer step; `next_loss` takes the next batch and returns its mean loss."""

    def step() -> None:
        with options.autocast():
            loss = next_loss()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step
