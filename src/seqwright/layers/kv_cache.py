"""KV cache: keys and values of past tokens, as attention reads and writes them.

Three layouts keep them: `SlotCache`, a buffer for each row, where generation admits and frees rows; `TreeCache`, a
buffer for each source, whose rows (beams) share prefixes; in training `SegmentMemory`, the last tokens of each row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from seqwright.core.state import State
from seqwright.layers.positions import Rotary


@dataclass
class KVCache(State):
    """Cached keys and values of R rows over B sources."""

    length: Tensor  # (R,): tokens of each row

    def positions(self, steps: int) -> Tensor:
        """(R, T): the positions of the next `steps` tokens of each row."""
        first = self.length.unsqueeze(1)
        return first if steps == 1 else first + torch.arange(steps, device=self.length.device)

    @abstractmethod
    def extended(self, steps: int, count: Tensor | None = None) -> Self:
        """The cache with room for `steps` new tokens of every row, `count` (R,) of them real; their keys and values are
        yet to be written (`write`)."""

    @abstractmethod
    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes keys and values (R, T, G, E) of the tokens added last; returns all (B, G, K, E) of the layer."""

    def committed(self, rotary: Rotary | None) -> Self:
        """The cache after all layers have written."""
        return self

    @property
    def prefilled(self) -> bool:
        """Whether the tokens added last are the only ones, so that causal attention needs no mask: rows are padded on
        the right, where no real token attends."""
        return False

    @property
    @abstractmethod
    def has_static_shapes(self) -> bool:
        """Whether steps leave every shape as it is, as CUDA graphs need (`State.static`)."""

    @property
    @abstractmethod
    def key_positions(self) -> Tensor:
        """(B, K): positions of the cached keys."""

    @abstractmethod
    def mask(self, positions: Tensor, window: int | None = None) -> Tensor:
        """Attention mask (B, 1, R / B · T, K) of queries at positions (R, T): own prefix, causal, within the window."""


def attention_mask(query: Tensor, key: Tensor, window: int | None = None, *, bidirectional: bool = False) -> Tensor:
    """Attention mask (B or 1, 1, T, K) from the positions of queries (B or 1, T) and keys (B, K) or (K,).

    Causal or bidirectional; with a sliding window, keys at distance `window` or more are masked (Child et al. 2019;
    Beltagy et al. 2020).
    """
    distance = query.unsqueeze(-1) - key.unsqueeze(-2)  # (B or 1, T, K)
    distance, mask = (distance.abs(), torch.ones_like(distance).bool()) if bidirectional else (distance, distance >= 0)
    return (mask if window is None else mask & (distance < window)).unsqueeze(1)
