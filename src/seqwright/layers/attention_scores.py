"""Attention scores of recurrent encoder-decoders: dot, scaled dot, general, additive and concat, one class each.

A score projects the memory (encoder output) to keys once per source, then scores queries (B, T, D) against keys
(B, S, D): (B, T, S).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Score(nn.Module):
    """Base class of scores; the memory itself is the key unless a score projects it."""

    def __init__(self, width: int):
        super().__init__()

    def keys(self, memory: Tensor) -> Tensor:
        return memory


class Dot(Score):
    """query · key (Luong et al. 2015)."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.transpose(1, 2)


class ScaledDot(Dot):
    """query · key / √D: the variance of scores does not grow with the width (Vaswani et al. 2017)."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return super().forward(query, key) / math.sqrt(query.size(-1))


class General(Dot):
    """queryᵀ W memory (Luong et al. 2015)."""

    def __init__(self, width: int):
        super().__init__(width)
        self.map = nn.Linear(width, width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.map(memory)


class Additive(Score):
    """vᵀ tanh(W₁ query + W₂ memory) (Bahdanau et al. 2015)."""

    def __init__(self, width: int):
        super().__init__(width)
        self.query = nn.Linear(width, width, bias=False)
        self.memory = nn.Linear(width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.energy(torch.tanh(self.query(query).unsqueeze(2) + key.unsqueeze(1))).squeeze(-1)


class Concat(Score):
    """vᵀ tanh(W [query; memory]) (Luong et al. 2015): additive attention with its two projections in one matrix."""

    def __init__(self, width: int):
        super().__init__(width)
        self.map = nn.Linear(2 * width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        # W [q; m] = W_q q + W_m m, so the memory's part is computed once per source, not once per pair.
        return memory @ self.map.weight[:, memory.size(-1) :].T

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        projected = query @ self.map.weight[:, : query.size(-1)].T  # (B, T, D)
        return self.energy(torch.tanh(projected.unsqueeze(2) + key.unsqueeze(1))).squeeze(-1)


SCORES: dict[str, type[Score]] = {
    "parameter-free": ScaledDot,
    "dot": Dot,
    "scaled-dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "additive": Additive,
}


class GlobalAttention(nn.Module):
    """Global attention over a memory, softmax(scores) values (Luong et al. 2015); its own module for forward hooks."""

    def __init__(self, score: Score):
        super().__init__()
        self.score = score

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Context vectors (B, T, D) from values (B, S, D); mask (B, S), True = may be attended."""
        return self.weights(query, key, mask=mask) @ value

    def weights(self, query: Tensor, key: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Attention weights (B, T, S)."""
        scores = self.score(query, key)
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), -torch.inf)
        return scores.softmax(-1)
