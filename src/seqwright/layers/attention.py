"""Multi-head attention: the weighted mean itself, self-attention, and the keys and values it remembers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.interface import State, shared
from seqwright.layers.positions import Rotary


class Attend(nn.Module):
    """softmax(query keyᵀ / √E) value: a module of its own so that an inspector can listen to it without a flag here."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.dropout = dropout

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """(B, H, T, E) from keys and values (B, H, K, E); mask (B or 1, 1, T or 1, K), True = may be attended."""
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)

    def weights(self, query: Tensor, key: Tensor, *, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The attention weights (B, H, T, K) that `forward` averages with; for looking, not for speed."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            # Adding minus infinity is the one way that both masks and sums to one (worked example 6).
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1)


@dataclass
class KeyValues(State):
    """Keys and values of all that was read, in buffers of fixed capacity; padded slots are masked, then overwritten."""

    key: Tensor  # (B, L, K, H, E)
    value: Tensor  # (B, L, K, H, E)
    length: Tensor  # (B,) how many slots are real
    used: Tensor = shared()
    """() long: slots that any row has written; beyond them the buffers are never read."""

    @classmethod
    def empty(cls, rows: int, layers: int, heads: int, size: int, capacity: int, like: Tensor) -> KeyValues:
        key, value = (like.new_zeros(rows, layers, capacity, heads, size) for _ in range(2))
        return cls(
            key, value, torch.zeros(rows, dtype=torch.long, device=like.device), torch.zeros((), dtype=torch.long)
        )

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Puts (B, T, H, E) behind what each row holds, in place; keys and values (B, H, K, E) of the layer so far."""
        rows = torch.arange(key.size(0), device=key.device).unsqueeze(1)  # (B, 1)
        slots = self.slots(key.size(1))
        self.key[:, layer][rows, slots] = key
        self.value[:, layer][rows, slots] = value
        stop = self.stop(key.size(1))
        return self.key[:, layer, :stop].transpose(1, 2), self.value[:, layer, :stop].transpose(1, 2)

    def slots(self, steps: int) -> Tensor:
        """The positions (B, T) that the next ids take."""
        return self.length.unsqueeze(1) + torch.arange(steps, device=self.length.device)

    def mask(self, steps: int) -> Tensor:
        """(B, 1, T, K): each new position sees all before it and itself."""
        places = torch.arange(self.stop(steps), device=self.length.device)
        return (places <= self.slots(steps).unsqueeze(-1)).unsqueeze(1)

    def stop(self, steps: int) -> int:
        """The first slot that stays unused when each row has been given so many more ids, padding included."""
        return min(int(self.used) + steps, self.key.size(2))

    def advance(self, steps: int, count: Tensor | None) -> KeyValues:
        return replace(
            self, length=self.length + (steps if count is None else count), used=torch.tensor(self.stop(steps))
        )

    def select(self, rows: Tensor, sources: Tensor | None = None) -> KeyValues:
        """As every state, but only what is used is copied: reordering beams costs more than the step otherwise."""
        stop = self.stop(0)
        buffers = []
        for held in (self.key, self.value):
            # Zeros, not whatever lies there: a masked slot still meets a weight of zero, and 0 · NaN is NaN.
            buffer = held.new_zeros(len(rows), *held.shape[1:])
            buffer[:, :, :stop] = held[:, :, :stop].index_select(0, rows)
            buffers.append(buffer)
        key, value = buffers
        return replace(self, key=key, value=value, length=self.length.index_select(0, rows))

    def reorder(self, rows: Tensor) -> KeyValues:
        """Rows that stay where they are cost nothing, the others one copy of what is used."""
        moved = torch.arange(len(rows), device=rows.device)
        if rows.device.type == "cpu":  # elsewhere counting the movers would wait for the device
            moved = (moved != rows).nonzero().squeeze(1)
        stop = self.stop(0)
        for held in (self.key, self.value):
            used = held[:, :, :stop]
            used.index_copy_(0, moved, used.index_select(0, rows[moved]))
        return replace(self, length=self.length.index_select(0, rows))


class SelfAttention(nn.Module):
    """Every position asks those before it and itself (Vaswani et al. 2017); the projection in and out is here."""

    def __init__(
        self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0, rotary: Rotary | None = None
    ):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=bias)
        self.attend = Attend(dropout)
        self.output = nn.Linear(width, width, bias=bias)
        self.rotary = rotary

    def forward(self, x: Tensor, positions: Tensor, memory: KeyValues | None = None, layer: int = 0) -> Tensor:
        """(B, T, D) from (B, T, D). With a memory, earlier keys and values are attended too."""
        projected = self.query_key_value(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, H, E)
        query, key, value = projected.unbind(2)  # each (B, T, H, E)
        if self.rotary is not None:
            query, key = self.rotary(query, positions), self.rotary(key, positions)
        if memory is None:
            keys, values = key.transpose(1, 2), value.transpose(1, 2)  # (B, H, T, E)
            attended = self.attend(query.transpose(1, 2), keys, values, causal=True)
        else:
            keys, values = memory.write(layer, key, value)  # (B, H, K, E)
            attended = self.attend(query.transpose(1, 2), keys, values, mask=memory.mask(x.size(1)))
        return self.output(attended.transpose(1, 2).flatten(-2))
