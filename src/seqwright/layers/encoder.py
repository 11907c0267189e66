"""Encoder protocols: embeddings in, hidden states out, one per position; causal (stateful) or over a full source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from seqwright.core.state import State


class CausalEncoder(Protocol):
    """Left-to-right encoder: output t depends on x[:, : t + 1] and, with a state, on everything before it."""

    width: int
    """Size of the hidden states."""
    context: int | None
    """Maximum number of positions; None where unlimited."""
    supports_document_mask: bool
    """Whether attention can be masked to the documents of a packed row."""

    def start(self, rows: int, capacity: int, like: Tensor) -> State:
        """The initial state; `like` gives device and dtype."""
        ...

    def __call__(
        self,
        x: Tensor,
        state: State | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D) and, where a state was passed, the state after; `count` (B,) is how many positions of
        each right-padded row are real.

        `documents` (B, T) masks attention to a token's document: needs supports_document_mask, and no state.
        """
        ...


@dataclass(frozen=True)
class EncoderOutput:
    """Hidden states of a source with their padding mask, and final states of recurrent encoders."""

    vectors: Tensor  # (B, S, D)
    mask: Tensor  # (B, S)
    last: Tensor | None = None
    """(B, C, L, D): final hidden (and, for LSTMs, cell) state of every layer of a recurrent encoder, directions
    concatenated; None for other encoders."""


class Encoder(Protocol):
    """Encoder of a complete source, possibly bidirectional."""

    width: int
    """Size of the hidden states."""
    context: int | None
    """Maximum number of positions; None where unlimited."""

    def __call__(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        """Encodes embeddings (B, S, D); positions where mask (B, S) is False do not affect the real ones."""
        ...


def last_real(x: Tensor, count: Tensor | None) -> Tensor:
    """The last position of each row that is not padding, x[:, count - 1]: (B, D) from (B, T, D)."""
    if count is None:
        return x[:, -1]
    index = (count - 1).view(-1, 1, 1).expand(-1, 1, x.size(-1))
    return x.gather(1, index).squeeze(1)
