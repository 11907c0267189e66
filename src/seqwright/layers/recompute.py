"""A decoding state for causal encoders that have none: the embeddings so far, encoded again at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.state import State
from seqwright.layers.encoder import Encoder


@dataclass
class RecomputeState(State):
    """The embeddings of all positions so far."""

    embeddings: Tensor  # (B, capacity, D), undefined beyond `length`
    length: Tensor  # (B,)

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        capacity = max(state.embeddings.size(1) for state in states)
        pads = [(0, 0, 0, capacity - state.embeddings.size(1)) for state in states]
        return [
            replace(state, embeddings=F.pad(state.embeddings, pad)) for state, pad in zip(states, pads, strict=True)
        ]

    def truncate(self, lengths: Tensor) -> Self:
        return replace(self, length=torch.minimum(self.length, lengths))

    def static(self, steps: int) -> None:
        """None: the number of positions that are encoded again grows at every step."""


class Recompute:
    """An encoder of complete sources, if causal, as a `CausalEncoder`: T positions cost as much as all before them.

    No nn.Module, since the encoder's weights keep the names that they have in other models.
    """

    masks_documents = False

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.width, self.context = encoder.width, encoder.context

    def start(self, rows: int, capacity: int, like: Tensor) -> RecomputeState:
        embeddings = like.new_zeros(rows, capacity, like.size(-1))
        return RecomputeState(embeddings, torch.zeros(rows, dtype=torch.long, device=like.device))

    def __call__(
        self,
        x: Tensor,
        state: State | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, RecomputeState | None]:
        assert documents is None
        rows, steps = x.shape[:2]
        if state is None:  # a causal encoder never sees right padding
            return self.encoder(x, torch.ones(rows, steps, dtype=torch.bool, device=x.device)).vectors, None
        assert isinstance(state, RecomputeState)
        # Beyond the context lie padding and free slots of the decoding engine alone.
        last = (self.context or torch.iinfo(torch.long).max) - 1
        places = (state.length.unsqueeze(1) + torch.arange(steps, device=x.device)).clamp(max=last)  # (B, T)
        total = int(places.amax()) + 1
        embeddings = state.embeddings
        if total > embeddings.size(1):
            embeddings = F.pad(embeddings, (0, 0, 0, total - embeddings.size(1)))
        index = places.unsqueeze(-1)
        embeddings = embeddings.scatter(1, index.expand(-1, -1, x.size(-1)), x.to(embeddings.dtype))
        mask = torch.arange(total, device=x.device) <= places[:, -1:]  # (B, total)
        vectors = self.encoder(embeddings[:, :total], mask).vectors
        length = (state.length + (steps if count is None else count)).clamp(max=last + 1)
        return vectors.gather(1, index.expand(-1, -1, vectors.size(-1))), RecomputeState(embeddings, length)
