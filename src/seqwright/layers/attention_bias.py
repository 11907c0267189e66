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
        """(B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (B, K) or (K,)."""
        slope = self.get_buffer("slopes").view(-1, 1, 1)
        return -slope * (query.unsqueeze(-1) - key.unsqueeze(-2)).abs().unsqueeze(1)


class Buckets(nn.Module):
    """A learned number for each head and range of distances, near ones exact, far ones pooled (Raffel et al. 2020).
    Where a position looks both ways, half of the buckets are for what lies ahead."""

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, *, both: bool = False):
        super().__init__()
        self.buckets, self.farthest, self.both = buckets, farthest, both
        self.table = nn.Embedding(buckets, heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """One bucket a distance for the first half of them, then ever longer ranges up to `farthest` and beyond."""
        if self.both:
            half = self.buckets // 2
            return self._range(distance.abs(), half) + torch.where(distance < 0, half, 0)
        return self._range(distance.clamp(min=0), self.buckets)

    def _range(self, distance: Tensor, buckets: int) -> Tensor:
        exact = buckets // 2
        share = (distance.clamp(min=exact).float() / exact).log() / math.log(self.farthest / exact)
        far = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return torch.where(distance < exact, distance, far)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """(B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (B, K) or (K,)."""
        return self.table(self.bucket(query.unsqueeze(-1) - key.unsqueeze(-2))).movedim(-1, 1)
