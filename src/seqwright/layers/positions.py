"""Where a token stands: sinusoids, learned tables and rotations."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """(..., D): sin and cos interleaved, wavelengths 2π to 10000·2π (Vaswani et al. 2017); any position has one."""
    if width % 2:
        raise ValueError(f"sinusoids come in pairs of sin and cos; width {width} is odd")
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double().unsqueeze(-1) / 10000 ** (even / width)  # (..., D / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


class Sinusoidal(nn.Module):
    """Adds the fixed sinusoids of `positions` to the tokens, whose embedding is scaled by √D to stand beside them."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.scale = width**0.5
        self.register_buffer("table", sinusoids(torch.arange(context), width).float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        table: Tensor = self.get_buffer("table")
        return x * self.scale + table[positions].to(x.dtype)


class Learned(nn.Module):
    """Adds a learned vector for each position up to the context (Radford et al. 2018)."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.table = nn.Embedding(context, width)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions)


class Unplaced(nn.Module):
    """Adds nothing: positions come by rotation, or not at all."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x


class Rotary(nn.Module):
    """Turns each pair of a query or key by an angle that grows with position, so that products know distance only
    (Su et al. 2021). Pairs are (i, i + E/2), Llama's layout."""

    def __init__(self, size: int, context: int, base: float = 10000.0):
        super().__init__()
        if size % 2:
            raise ValueError(f"rotary positions turn pairs; head size {size} is odd")
        frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.arange(context, dtype=torch.float64).unsqueeze(1) * frequency  # (context, E / 2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, H, E) turned; positions (B or 1, T)."""
        cos = self.get_buffer("cos")[positions].unsqueeze(2).to(x.dtype)  # (B or 1, T, 1, E / 2)
        sin = self.get_buffer("sin")[positions].unsqueeze(2).to(x.dtype)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
