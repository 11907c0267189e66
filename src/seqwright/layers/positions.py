"""Positional encodings: sinusoidal, learned and rotary (RoPE)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.limits import check_limit


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Sinusoidal encoding (..., D): sin and cos interleaved, wavelengths 2π to 10000·2π (Vaswani et al. 2017); the last
    feature of an odd width is a sine."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double().unsqueeze(-1) / 10000 ** (even / width)  # (..., ⌈D / 2⌉)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :width]


def table_positions(context: int, width: int) -> Tensor:
    """Positions (context,) of a float32 table (context, D), at most SEQWRIGHT_MAX_BUFFER_BYTES of them.

    On the CPU even where a model is built on the meta device: arithmetic there imports torch's compiler.
    """
    size = 4 * context * width
    check_limit("SEQWRIGHT_MAX_BUFFER_BYTES", size, f"a positional table for context = {context:,} has {size:,} bytes")
    return torch.arange(context, device="cpu")


class Sinusoidal(nn.Module):
    """Adds fixed sinusoidal encodings to embeddings, which are scaled by √D first (Vaswani et al. 2017, §3.4)."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.scale = width**0.5
        self.register_buffer("table", sinusoids(table_positions(context, width), width).float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        table: Tensor = self.get_buffer("table")
        return x * self.scale + table[positions].to(x.dtype)


class Learned(nn.Module):
    """Adds learned position embeddings, up to the context length (Radford et al. 2018)."""

    def __init__(self, width: int, context: int):
        super().__init__()
        self.table = nn.Embedding(context, width)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions)


class NoPositions(nn.Module):
    """Adds nothing: positions enter through attention (rotary, biases) or not at all (NoPE)."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x


class Rotary(nn.Module):
    """Rotary position embedding (RoPE, Su et al. 2021): rotates pairs of a query or key by angles proportional to the
    position, so that dot products depend on relative position only. Pairs are (i, i + E/2), Llama's layout."""

    def __init__(self, size: int, context: int, base: float = 10000.0):
        super().__init__()
        if size % 2:
            raise ValueError(f"rotary embeddings rotate pairs; head size {size} is odd")
        # In float64: float32 angles of long contexts lose digits before the sine.
        positions = table_positions(context, size).double()
        frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64, device="cpu") / size)
        angles = positions.unsqueeze(1) * frequency  # (context, E / 2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotated queries or keys (B, T, H, E) at positions (B or 1, T)."""
        cos = self.get_buffer("cos")[positions].unsqueeze(2).to(x.dtype)  # (B or 1, T, 1, E / 2)
        sin = self.get_buffer("sin")[positions].unsqueeze(2).to(x.dtype)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def rotated_back(self, x: Tensor, steps: int) -> Tensor:
        """Rotated queries or keys (..., E) as at positions `steps` lower."""
        cos, sin = (self.get_buffer(name)[steps].to(x.dtype) for name in ("cos", "sin"))  # (E / 2,)
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos + second * sin, second * cos - first * sin], -1)
