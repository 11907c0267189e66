"""Model FLOPs utilization (MFU, Chowdhery et al. 2022): the share of a GPU's peak that training's arithmetic takes."""

from __future__ import annotations

import re

import torch
from torch import nn

PEAKS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""Dense bf16 floating-point operations a second with float32 accumulation, by the vendor's data sheets."""


def peak_flops(device: torch.device) -> float | None:
    """The bf16 peak of a GPU, or None where it is unknown: MFU is of this peak, whatever the precision."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)  # an L40 is no L4


def flops_per_token(model: nn.Module) -> int:
    """6 operations a token for each weight of a matrix product: 2 forward, 4 backward. Attention scores, which grow
    with the context, are not counted."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    products = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    counted = {
        id(p): p.numel() for p in model.parameters() if p.dim() >= 2 and (id(p) not in tables or id(p) in products)
    }
    return 6 * sum(counted.values())


class Utilization:
    """The MFU of a training on a number of GPUs, for its log."""

    def __init__(self, model: nn.Module, device: torch.device, gpus: int):
        self.peak, self.gpus, self.flops_per_token = peak_flops(device), gpus, flops_per_token(model)

    def record(self, tokens_per_second: float) -> dict[str, float]:
        """The MFU at a speed, where the device's peak is known."""
        if self.peak is None:
            return {}
        return {"mfu": round(self.flops_per_token * tokens_per_second / (self.gpus * self.peak), 4)}
