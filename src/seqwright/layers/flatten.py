"""The lectures' second way: all hidden states so far, flattened to a fixed length, feed the read-out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.protocols import State
from seqwright.layers.encoder import CausalEncoder


@dataclass
class Flat(State):
    """What the wrapped encoder remembers, and every vector it has put out."""

    inner: State
    seen: Tensor  # (B, context, D), zero where nothing was read yet
    length: Tensor  # (B,)


class PrefixFlatten(nn.Module):
    """h_1 … h_t 0 … 0 as one vector for each t: padding to the fixed length is zero and never changes a prediction."""

    apart = False

    def __init__(self, encoder: nn.Module, width: int, context: int):
        super().__init__()
        self.encoder: CausalEncoder = encoder  # type: ignore[assignment]
        self.size = width
        self.context = context
        self.width = width * context

    def start(self, rows: int, capacity: int, like: Tensor) -> Flat:
        seen = like.new_zeros(rows, self.context, self.size)
        return Flat(
            self.encoder.start(rows, capacity, like), seen, torch.zeros(rows, dtype=torch.long, device=like.device)
        )

    def forward(self, x: Tensor, state: Flat | None = None, count: Tensor | None = None) -> tuple[Tensor, Flat | None]:
        begun = state or self.start(x.size(0), x.size(1), x)
        hidden, inner = self.encoder(x, state and state.inner, count)
        steps = torch.arange(x.size(1), device=x.device)
        # Padding may stand behind the context, as may rows whose search has ended: all in one place that is cut off.
        slots = (begun.length.unsqueeze(1) + steps).clamp(max=self.context)  # (B, T)
        rows = torch.arange(x.size(0), device=x.device).unsqueeze(1)
        room = F.pad(begun.seen.to(hidden.dtype), (0, 0, 0, 1))  # (B, context + 1, D)
        seen = room.index_put((rows, slots), hidden)[:, : self.context]  # (B, context, D)
        visible = torch.arange(self.context, device=x.device) <= slots.unsqueeze(-1)  # (B, T, context)
        flat = (seen.unsqueeze(1) * visible.unsqueeze(-1)).flatten(2)  # (B, T, context * D)
        if state is None:
            return flat, None
        assert inner is not None
        length = begun.length + (x.size(1) if count is None else count)
        real = torch.arange(self.context, device=x.device) < length.unsqueeze(1)  # (B, context)
        return flat, Flat(inner, seen * real.unsqueeze(-1), length)
