"""Flattened prefixes: all hidden states so far, zero-padded to a fixed length, as input of the output layer.

The second of the lectures' two ways to predict the next token from an encoder; the first reads h_t alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.state import State
from seqwright.layers.encoder import CausalEncoder


@dataclass
class FlattenState(State):
    """State of the wrapped encoder, and all hidden states so far."""

    inner: State
    seen: Tensor  # (B, context, D), zeros beyond `length`
    length: Tensor  # (B,)


class PrefixFlatten(nn.Module):
    """[h_1 … h_t 0 … 0] as one vector for each t; the zero padding contributes nothing to a linear output layer."""

    masks_documents = False

    def __init__(self, encoder: nn.Module, width: int, context: int):
        super().__init__()
        self.encoder: CausalEncoder = encoder  # type: ignore[assignment]
        self.size = width
        self.context = context
        self.width = width * context

    def start(self, rows: int, capacity: int, like: Tensor) -> FlattenState:
        seen = like.new_zeros(rows, self.context, self.size)
        return FlattenState(
            self.encoder.start(rows, capacity, like), seen, torch.zeros(rows, dtype=torch.long, device=like.device)
        )

    def forward(
        self, x: Tensor, state: FlattenState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, FlattenState | None]:
        before = state or self.start(x.size(0), x.size(1), x)
        hidden, inner = self.encoder(x, state and state.inner, count)
        steps = torch.arange(x.size(1), device=x.device)
        # Padding and finished beams may lie beyond the context: they all go to one extra slot, which is cut off.
        slots = (before.length.unsqueeze(1) + steps).clamp(max=self.context)  # (B, T)
        rows = torch.arange(x.size(0), device=x.device).unsqueeze(1)
        buffer = F.pad(before.seen.to(hidden.dtype), (0, 0, 0, 1))  # (B, context + 1, D)
        seen = buffer.index_put((rows, slots), hidden)[:, : self.context]  # (B, context, D)
        causal = torch.arange(self.context, device=x.device) <= slots.unsqueeze(-1)  # (B, T, context)
        flat = (seen.unsqueeze(1) * causal.unsqueeze(-1)).flatten(2)  # (B, T, context * D)
        if state is None:
            return flat, None
        assert inner is not None
        length = before.length + (x.size(1) if count is None else count)
        real = torch.arange(self.context, device=x.device) < length.unsqueeze(1)  # (B, context)
        return flat, FlattenState(inner, seen * real.unsqueeze(-1), length)
