"""What distance adds to attention scores: straight lines (ALiBi) and learned buckets (T5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def slopes(heads: int) -> Tensor:
    """(H,): 2^(-8/H), its square, its cube …; heads that are no power of two take every other slope of the next one."""
    whole = 2 ** math.floor(math.log2(heads))
    base = [2 ** (-8 * n / whole) for n in range(1, whole + 1)]
    between = [2 ** (-4 * n / whole) for n in range(1, 2 * (heads - whole), 2)]
    return torch.tensor(base + between)


class ALiBi(nn.Module):
    """Farther keys score less, in a straight line with a slope for each head: ALiBi (Press et al. 2022)."""

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", slopes(heads), persistent=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (K,)."""
        slope = self.get_buffer("slopes").view(-1, 1, 1)
        return -slope * (query.unsqueeze(-1) - key).unsqueeze(1)


class Buckets(nn.Module):
    """A learned number for each head and range of distances, near ones exact, far ones pooled (Raffel et al. 2020)."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128):
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.table = nn.Embedding(buckets, heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """One bucket a distance for the first half of them, then ever longer ranges up to `farthest` and beyond."""
        exact = self.buckets // 2
        share = (distance.clamp(min=exact).float() / exact).log() / math.log(self.farthest / exact)
        far = (exact + (share * (self.buckets - exact)).long()).clamp(max=self.buckets - 1)
        return torch.where(distance < exact, distance.clamp(min=0), far)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (K,)."""
        return self.table(self.bucket(query.unsqueeze(-1) - key)).movedim(-1, 1)
