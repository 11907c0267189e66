"""Encoders: embeddings in, hidden states out, one per position; causal (stateful) or over a complete source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from seqwright.core.state import State


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ABC):
    """Base of encoder options: beside its own keys, what any head needs to know of the encoder."""

    autoregressive: ClassVar[bool] = False
    """Whether the encoder is causal whatever its options, so that it may be a language model."""
    poolings: ClassVar[tuple[str, ...]] = ("mean", "max", "attention", "first", "final")
    """Poolings to one vector per source that are defined for the encoder; the first is the default."""
    head_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Head → key → default, where it is not the head's."""
    head_fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Head → key → value, where the encoder leaves no choice: no keys of a recipe."""
    token_std: ClassVar[float | None] = None
    """Standard deviation of new token embeddings (and untied output layers) in the encoder's paper."""
    readout_bias: ClassVar[bool] = True
    """Whether the output layer of a language model has a bias."""

    @property
    def causal(self) -> bool:
        """Whether output t depends on x[:, : t + 1] alone."""
        return self.autoregressive

    @property
    @abstractmethod
    def input_width(self) -> int:
        """Size of the embeddings that the encoder takes."""

    @property
    def output_width(self) -> int:
        """Size of the hidden states."""
        return self.input_width

    @property
    def token_dropout(self) -> float:
        """Rate at which a language model drops token types from its embedding."""
        return 0.0

    @property
    def output_length(self) -> int | None:
        """Number of output positions where every source is padded to one length; None where lengths vary."""
        return None

    @property
    def head_norm_eps(self) -> float:
        """Epsilon of normalizations in a head."""
        return 1e-12

    @property
    def aligned(self) -> bool:
        """Whether there is one hidden state for each position of the source."""
        return self.output_length is None

    def initialize(self, module: nn.Module) -> None:  # noqa: B027 a hook with nothing to do by default
        """Initializes an embedding or head as the encoder's paper does; without one, PyTorch's initialization stays."""

    def check_pooling(self, names: tuple[str, ...]) -> None:  # noqa: B027 likewise
        """Refuses poolings that these options do not define."""

    def for_images(self, length: int, *, class_token: bool) -> EncoderConfig:
        """The options for images of `length` patches; `class_token`: pooled at the first position."""
        return self


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


@runtime_checkable
class CausalEncoder(Protocol):
    """Left-to-right encoder with a state: output t depends on x[:, : t + 1] and on everything before the state."""

    width: int
    """Size of the hidden states."""
    context: int | None
    """Maximum number of positions; None where unlimited."""
    masks_documents: bool
    """Whether attention can be masked to the documents of a packed row."""

    def start(self, rows: int, capacity: int, like: Tensor) -> State:
        """The initial state; `like` (..., D) gives device, dtype and size of the embeddings."""
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

        `documents` (B, T) masks attention to a token's document: needs masks_documents, and no state.
        """
        ...


@runtime_checkable
class RecurrentActivations(Protocol):
    """Causal encoder whose last layer can be read before dropout, for activation regularization."""

    def activations(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D) before dropout and, where a state was passed, the state after."""
        ...

    def drop_output(self, output: Tensor) -> Tensor:
        """Dropout of those hidden states."""
        ...


@runtime_checkable
class SegmentEncoder(Protocol):
    """Causal encoder with a context limit that can carry a memory from one segment of a text to the next."""

    @property
    def has_relative_positions(self) -> bool:
        """Whether only the distance between tokens enters, not where they are."""
        ...

    def segment_memory(self, rows: int, length: int, like: Tensor) -> State:
        """The empty memory beside segments of `length` tokens."""
        ...


def last_real(x: Tensor, count: Tensor | None) -> Tensor:
    """The last position of each row that is not padding, x[:, count - 1]: (B, D) from (B, T, D)."""
    if count is None:
        return x[:, -1]
    index = (count - 1).view(-1, 1, 1).expand(-1, 1, x.size(-1))
    return x.gather(1, index).squeeze(1)
