"""The middle of a model: vectors in, vectors out, one for each position, causal or seeing everything at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from seqwright.core.protocols import State


class CausalEncoder(Protocol):
    """Position t of what comes back has read x[:, : t + 1] and, with a state, everything before it."""

    width: int
    """Size of the vectors that come back."""
    context: int | None
    """The most positions it can tell apart; None where any length will do."""
    apart: bool
    """Whether it can keep the documents of a row apart."""

    def start(self, rows: int, capacity: int, like: Tensor) -> State:
        """The state before anything was read; `like` gives device and dtype."""
        ...

    def __call__(
        self,
        x: Tensor,
        state: State | None = None,
        count: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, State | None]:
        """(B, T, D) and the state after, where one was given; `count` (B,) is how many positions of a row are real.

        `documents` (B, T) is given only to those that can keep them apart, and never with a state.
        """
        ...


@dataclass(frozen=True)
class EncoderOutput:
    """What a reader made of a source."""

    vectors: Tensor  # (B, S, D)
    mask: Tensor  # (B, S)
    last: Tensor | None = None
    """(B, C, L, D): where a recurrent reader ended, hidden and perhaps cell of every layer; its directions side by
    side."""


class Encoder(Protocol):
    """An encoder that is given the whole source at once."""

    width: int
    """Size of the vectors that come back."""
    context: int | None
    """The most positions it can tell apart; None where any length will do."""

    def __call__(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        """From token vectors (B, S, D) and mask (B, S); what stands where the mask is False changes nothing."""
        ...


def last_real(x: Tensor, count: Tensor | None) -> Tensor:
    """x[:, count - 1] row by row: (B, D) from (B, T, D)."""
    if count is None:
        return x[:, -1]
    index = (count - 1).view(-1, 1, 1).expand(-1, 1, x.size(-1))
    return x.gather(1, index).squeeze(1)
