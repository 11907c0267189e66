"""Cross-attention: a decoder's positions ask a memory that the beams of one source share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.protocols import State, per_source
from seqwright.layers.attention import Attend, hiding


class Given(NamedTuple):
    """What one layer's cross-attention may ask."""

    key: Tensor  # (B, H, S, E)
    value: Tensor  # (B, H, S, E)
    bias: Tensor | None  # (B, 1, 1, S): minus infinity for padding; None where there is none


@dataclass
class Memory(State):
    """Keys and values of the source for every layer, computed once and held once for each source."""

    key_value: Tensor = per_source()
    """(B, L, 2, H, S, E): the keys of a head in one piece, since every step reads them all."""
    mask: Tensor = per_source()
    """(B, S)"""

    def layers(self) -> list[Given]:
        folded = hiding(self.mask[:, None, None], self.key_value)
        return [Given(key, value, folded) for key, value in (pair.unbind(1) for pair in self.key_value.unbind(1))]

    def static(self, steps: int) -> Self:
        return self

    def cat(self, other: Self) -> Self:
        """The sources of both; the shorter ones are padded."""
        longest = max(self.mask.size(1), other.mask.size(1))
        mine, theirs = (
            type(memory)(pad(memory.key_value, longest, -2), pad(memory.mask, longest)) for memory in (self, other)
        )
        return State.cat(mine, theirs)


class CrossAttention(nn.Module):
    """Every position asks the memory (Vaswani et al. 2017), whose keys and values are given."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.attend = Attend(dropout)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        """(R, T, D) from (R, T, D), R rows over the B sources of the memory: beams are folded into the query axis."""
        query = self.query(x).view(given.key.size(0), -1, self.heads, given.key.size(-1))  # (B, R / B · T, H, E)
        attended = self.attend(query.transpose(1, 2), given.key, given.value, bias=given.bias)
        return self.output(attended.transpose(1, 2).reshape(x.shape))


def pad(x: Tensor, longest: int, axis: int = 1) -> Tensor:
    """As many entries along an axis, zeros (False) behind: (B, longest, …) from (B, S, …)."""
    if x.size(axis) == longest:
        return x
    behind = x.dim() - 1 - axis % x.dim()
    return F.pad(x, (0, 0) * behind + (0, longest - x.size(axis)))
