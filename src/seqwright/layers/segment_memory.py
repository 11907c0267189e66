"""Segment memory (Transformer-XL, Dai et al. 2019): keys and values of preceding segments, attended to.

Training on contiguous segments then learns from contexts longer than a segment. Other than in the paper, keys and
values are kept instead of hidden states: they are not computed again, and no gradient reaches their projections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqwright.layers.kv_cache import KVCache, attention_mask
from seqwright.layers.positions import Rotary


@dataclass
class SegmentMemory(KVCache):
    """The last M tokens of each row, right-aligned; a segment is at positions M, M + 1, …

    Law: consecutive segments of up to M tokens and one more = one forward pass over all of them.
    """

    key: Tensor  # (R, L, M, G, E)
    value: Tensor  # (R, L, M, G, E)

    def __post_init__(self) -> None:
        self.steps = 0
        """Tokens of the segment."""
        self.written: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values (R, M, G, E) of the memory after this segment, by layer."""

    @classmethod
    def empty(cls, rows: int, layers: int, heads: int, size: int, memory: int, like: Tensor) -> SegmentMemory:
        """An empty memory of `memory` tokens; `like` gives device and dtype."""
        shape = (rows, layers, memory, heads, size)  # plain tensors, where parameters are sharded too
        key, value = (torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(2))
        return cls(torch.zeros(rows, dtype=torch.long, device=like.device), key, value)

    @property
    def size(self) -> int:
        """Tokens of the memory (M)."""
        return self.key.size(2)

    def positions(self, steps: int) -> Tensor:
        return (self.size + torch.arange(steps, device=self.length.device)).expand(len(self.length), -1)

    def extended(self, steps: int, count: Tensor | None = None) -> SegmentMemory:
        assert count is None, "segments are not padded"
        extended = replace(self)
        extended.steps = steps
        return extended

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([self.key[:, layer].to(key.dtype), key], 1)  # (R, M + T, G, E)
        values = torch.cat([self.value[:, layer].to(value.dtype), value], 1)
        memory = slice(self.steps, self.steps + self.size)
        self.written[layer] = keys[:, memory].detach(), values[:, memory].detach()
        return keys.transpose(1, 2), values.transpose(1, 2)

    def committed(self, rotary: Rotary | None) -> SegmentMemory:
        """The memory for the next segment, whose positions are counted from a later token: keys are rotated back."""
        layers = [self.written[layer] for layer in range(self.key.size(1))]
        keys, values = (torch.stack(parts, 1).to(self.key.dtype) for parts in zip(*layers, strict=True))
        if rotary is not None:
            keys = rotary.rotated_back(keys, self.steps)
        length = (self.length + self.steps).clamp(max=self.size)
        return replace(self, length=length, key=keys, value=values)

    @property
    def has_static_shapes(self) -> bool:
        return False

    @property
    def key_positions(self) -> Tensor:
        return torch.arange(self.size + self.steps, device=self.key.device).expand(len(self.key), -1)

    def mask(self, positions: Tensor, window: int | None = None) -> Tensor:
        keys = self.key_positions
        filled = keys >= (self.size - self.length).unsqueeze(1)  # (R, M + T)
        return attention_mask(positions, keys, window) & filled[:, None, None]
