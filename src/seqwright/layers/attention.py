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
    """softmax(query keyᵀ / √E + bias) value: a module of its own so that an inspector can listen to it without a flag
    here. Keys and values may have fewer heads, each shared by a group of neighbouring query heads."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.dropout = dropout

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """(B, H, T, E) from keys and values (B, G, K, E), H a multiple of G.

        mask (B or 1, 1, T or 1, K): True = may be attended; bias (B or 1, H or 1, T or 1, K) is added to the scores.
        """
        dropout = self.dropout if self.training else 0.0
        grouped = query.size(1) != key.size(1)
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
        )

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """The attention weights (B, H, T, K) that `forward` averages with; for looking, not for speed."""
        key = key.repeat_interleave(query.size(1) // key.size(1), 1)  # (B, H, K, E)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        if bias is not None:
            scores = scores + bias
        if causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            # Adding minus infinity is the one way that both masks and sums to one (worked example 6).
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1)


def visible(query: Tensor, key: Tensor, window: int | None = None, *, ahead: bool = False) -> Tensor:
    """Which key positions (K,) each query position (B or 1, T) sees, (B or 1, 1, T, K): itself and those before it (and
    `ahead` of it), but for what lies `window` or more away (Child et al. 2019; Beltagy et al. 2020)."""
    distance = query.unsqueeze(-1) - key  # (B or 1, T, K)
    distance, seen = (distance.abs(), torch.ones_like(distance).bool()) if ahead else (distance, distance >= 0)
    return (seen if window is None else seen & (distance < window)).unsqueeze(1)


def needed(mask: Tensor) -> Tensor | None:
    """The mask, or None where it hides nothing: attention is faster without. A GPU would have to stop and tell us."""
    return None if mask.device.type == "cpu" and bool(mask.all()) else mask


def hiding(mask: Tensor, like: Tensor) -> Tensor | None:
    """The mask as a bias of 0 and minus infinity, made once for all layers, or None where it hides nothing."""
    kept = needed(mask)
    return None if kept is None else torch.zeros_like(kept, dtype=like.dtype).masked_fill_(~kept, -torch.inf)


@dataclass
class KeyValues(State):
    """Keys and values of all that was read, in buffers of fixed capacity; padded slots are masked, then overwritten."""

    key: Tensor  # (B, L, K, G, E), G heads of keys
    value: Tensor  # (B, L, K, G, E)
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
        """Puts (B, T, G, E) behind what each row holds, in place; keys and values (B, G, K, E) of the layer so far."""
        rows = torch.arange(key.size(0), device=key.device).unsqueeze(1)  # (B, 1)
        slots = self.slots(key.size(1))
        self.key[:, layer][rows, slots] = key
        self.value[:, layer][rows, slots] = value
        stop = self.stop(key.size(1))
        return self.key[:, layer, :stop].transpose(1, 2), self.value[:, layer, :stop].transpose(1, 2)

    def slots(self, steps: int) -> Tensor:
        """The positions (B, T) that the next ids take."""
        return self.length.unsqueeze(1) + torch.arange(steps, device=self.length.device)

    def places(self, steps: int) -> Tensor:
        """The positions (K,) of the keys that are read together with so many new ids."""
        return torch.arange(self.stop(steps), device=self.length.device)

    def mask(self, steps: int, window: int | None = None) -> Tensor:
        """(B, 1, T, K): each new position sees all before it and itself, or those inside its window."""
        return visible(self.slots(steps), self.places(steps), window)

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

    def steady(self) -> KeyValues:
        """Reads the buffers to their end, whatever is used: what is not is masked."""
        return replace(self, used=torch.tensor(self.key.size(2)))

    def reorder(self, rows: Tensor) -> KeyValues:
        """Rows that stay where they are cost nothing, the others one copy of what is used."""
        stop = self.stop(0)
        for used in (self.key[:, :, :stop], self.value[:, :, :stop]):
            if rows.device.type == "cpu":
                moved = (torch.arange(len(rows)) != rows).nonzero().squeeze(1)
                used.index_copy_(0, moved, used.index_select(0, rows[moved]))
            else:  # counting the movers would wait for the device
                used.copy_(used.index_select(0, rows))
        return replace(self, length=self.length.index_select(0, rows))


class SelfAttention(nn.Module):
    """Every position asks those before it and itself, or all of them (Vaswani et al. 2017)."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_heads: int | None = None,
        window: int | None = None,
        query_key_norm: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        causal: bool = True,
    ):
        super().__init__()
        size = width // heads
        self.causal = causal
        # Fewer heads of keys and values, each for a group of queries (Shazeer 2019; Ainslie et al. 2023).
        self.heads, self.key_heads = heads, key_heads or heads
        self.window = window
        self.query_key_value = nn.Linear(width, (heads + 2 * self.key_heads) * size, bias=bias)
        # Scores between vectors of one length cannot run away (Henry et al. 2020).
        self.query_norm = nn.RMSNorm(size, eps=1e-6) if query_key_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(size, eps=1e-6) if query_key_norm else nn.Identity()
        self.attend = Attend(dropout)
        self.output = nn.Linear(width, width, bias=bias)
        self.rotary = rotary

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: KeyValues | None = None,
        layer: int = 0,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D). With a memory, earlier keys and values are attended too; bias as for Attend: what
        the memory's mask hides is hidden by it (`hiding`).

        Without a memory, a mask (B, 1, T or 1, T) says which of the positions that would be seen may be.
        """
        projected = self.query_key_value(x).unflatten(-1, (self.heads + 2 * self.key_heads, -1))
        query, key, value = projected.split([self.heads, self.key_heads, self.key_heads], 2)  # (B, T, H or G, E)
        query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            query, key = self.rotary(query, positions), self.rotary(key, positions)
        query = query.transpose(1, 2)  # (B, H, T, E)
        causal = False
        if memory is not None:
            keys, values = memory.write(layer, key, value)  # (B, G, K, E)
        else:
            keys, values = key.transpose(1, 2), value.transpose(1, 2)  # (B, G, T, E)
            # The fast path needs no mask in memory.
            windowed = self.window is not None and self.window < x.size(1)
            causal = self.causal and bias is None and mask is None and not windowed
            if windowed or (self.causal and not causal):
                places = torch.arange(x.size(1), device=x.device)
                seen = visible(places.unsqueeze(0), places, self.window, ahead=not self.causal)  # (1, 1, T, T)
                mask = seen if mask is None else seen & mask
        attended = self.attend(query, keys, values, mask=mask, bias=bias, causal=causal)
        return self.output(attended.transpose(1, 2).flatten(-2))
