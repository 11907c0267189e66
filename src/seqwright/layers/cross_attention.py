"""Cross-attention of a decoder over the encoder output, whose keys and values the beams of a source share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.state import State, per_source
from seqwright.layers.attention import Attend, additive_mask


class CrossKV(NamedTuple):
    """Keys, values and padding bias of the source for one layer's cross-attention."""

    key: Tensor  # (B, H, S, E)
    value: Tensor  # (B, H, S, E)
    bias: Tensor | None  # (B, 1, 1, S): minus infinity at padding; None without padding


@dataclass
class CrossKVCache(State):
    """Cross-attention keys and values of every layer, computed once and stored once per source."""

    key_value: Tensor = per_source()
    """(B, L, 2, H, S, E): the keys of a head are contiguous, since every step reads all of them."""
    mask: Tensor = per_source()
    """(B, S)"""

    def layers(self) -> list[CrossKV]:
        """Keys, values and bias of each layer."""
        bias = additive_mask(self.mask[:, None, None], self.key_value)
        return [CrossKV(key, value, bias) for key, value in (pair.unbind(1) for pair in self.key_value.unbind(1))]

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """Sources padded to the longest."""
        length = max(state.mask.size(1) for state in states)
        return [cls(pad(state.key_value, length, -2), pad(state.mask, length)) for state in states]


class CrossAttention(nn.Module):
    """Multi-head cross-attention (Vaswani et al. 2017) over precomputed keys and values."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0, scaled: bool = True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.attend = Attend(dropout, scaled=scaled)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, memory: CrossKV) -> Tensor:
        """(R, T, D) from (R, T, D), R rows over the B sources of the memory: beams are folded into the query axis."""
        query = self.query(x).view(memory.key.size(0), -1, self.heads, memory.key.size(-1))  # (B, R / B · T, H, E)
        attended = self.attend(query.transpose(1, 2), memory.key, memory.value, bias=memory.bias)
        return self.output(attended.transpose(1, 2).reshape(x.shape))


def pad(x: Tensor, length: int, axis: int = 1) -> Tensor:
    """x right-padded with zeros (False) to `length` along an axis: (B, length, …) from (B, S, …)."""
    if x.size(axis) == length:
        return x
    trailing = x.dim() - 1 - axis % x.dim()  # F.pad counts axes from the last
    return F.pad(x, (0, 0) * trailing + (0, length - x.size(axis)))
