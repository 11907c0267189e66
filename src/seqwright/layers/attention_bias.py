"""Attention biases by distance: linear (ALiBi) and learned by bucket (T5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def alibi_slopes(heads: int) -> Tensor:
    """(H,): the geometric sequence 2^(-8/H), 2^(-16/H), …, as in the paper.

    Where H is no power of two, the slopes of the power below are followed by every other slope of the power above.
    """
    power = 2 ** math.floor(math.log2(heads))
    base = [2 ** (-8 * n / power) for n in range(1, power + 1)]
    between = [2 ** (-4 * n / power) for n in range(1, 2 * (heads - power), 2)]
    return torch.tensor(base + between)


class ALiBi(nn.Module):
    """Attention with linear biases: minus slope times distance, with one slope per head (Press et al. 2022)."""

    def __init__(self, heads: int):
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(heads), persistent=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Bias (B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (B, K) or (K,)."""
        slope = self.get_buffer("slopes").view(-1, 1, 1)
        # Symmetric where attention is bidirectional; causal attention masks keys after the query anyway.
        return -slope * (query.unsqueeze(-1) - key.unsqueeze(-2)).abs().unsqueeze(1)


class RelativePositionBias(nn.Module):
    """T5's relative position bias: a learned scalar per head and bucket of distances (Raffel et al. 2020).

    Where attention is bidirectional, half of the buckets are for keys after the query. Unlike in T5, scores are scaled
    by 1 / √E all the same.
    """

    def __init__(self, heads: int, num_buckets: int = 32, max_distance: int = 128, *, bidirectional: bool = False):
        super().__init__()
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = nn.Embedding(num_buckets, heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance: exact in the first half, then logarithmic up to `max_distance` and beyond."""
        # distance = query - key, the negative of T5's relative_position.
        if self.bidirectional:
            half = self.num_buckets // 2
            return self._bucket(distance.abs(), half) + torch.where(distance < 0, half, 0)
        return self._bucket(distance.clamp(min=0), self.num_buckets)

    def _bucket(self, distance: Tensor, num_buckets: int) -> Tensor:
        exact = num_buckets // 2
        fraction = (distance.clamp(min=exact).float() / exact).log() / math.log(self.max_distance / exact)
        logarithmic = (exact + (fraction * (num_buckets - exact)).long()).clamp(max=num_buckets - 1)
        return torch.where(distance < exact, distance, logarithmic)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Bias (B or 1, H, T, K) from the positions of queries (B or 1, T) and keys (B, K) or (K,)."""
        return self.table(self.bucket(query.unsqueeze(-1) - key.unsqueeze(-2))).movedim(-1, 1)
