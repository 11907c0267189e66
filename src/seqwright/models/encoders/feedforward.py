"""Feed-forward language model: a hidden layer over the last n tokens (Bengio et al. 2003); n = 1 is a neural bigram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqwright.core.config import check_shares, check_sizes
from seqwright.core.state import State
from seqwright.layers.encoder import EncoderConfig

PLAIN_READOUT: Mapping[str, Mapping[str, Any]] = {"text": {"tied": False, "readout": "each", "length": None}}
"""As in the paper: an output layer of its own over each hidden state."""


@dataclass(frozen=True, kw_only=True)
class NeuralBigramConfig(EncoderConfig):
    width: int = 128
    """Size of the embedding and of the hidden layer."""

    autoregressive: ClassVar[bool] = True
    head_fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = PLAIN_READOUT

    def __post_init__(self) -> None:
        check_sizes(self, "width")

    @property
    def input_width(self) -> int:
        return self.width


@dataclass(frozen=True, kw_only=True)
class FeedforwardConfig(EncoderConfig):
    context_size: int = 8
    """Number of preceding tokens that predict the next (n-gram order - 1)."""
    width: int = 256
    """Size of the hidden layer."""
    embedding: int = 64
    """Embedding size."""
    dropout: float = 0.0
    """Dropout rate of the hidden layer."""

    autoregressive: ClassVar[bool] = True
    head_fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = PLAIN_READOUT

    def __post_init__(self) -> None:
        check_sizes(self, "context_size", "width", "embedding")
        check_shares(self, "dropout")

    @property
    def input_width(self) -> int:
        return self.embedding

    @property
    def output_width(self) -> int:
        return self.width


@dataclass
class WindowState(State):
    """The embeddings of the last window - 1 tokens; zeros before the first."""

    vectors: Tensor  # (B, window - 1, D)


class FeedforwardEncoder(nn.Module):
    """tanh(W [x_(t-n+1) … x_t] + b) over the last n = `window` embeddings: a smooth n-gram model."""

    context = None
    masks_documents = False

    def __init__(self, size: int, window: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.width = width
        self.window = window
        self.size = size
        self.mix = nn.Linear(window * size, width)
        self.dropout = nn.Dropout(dropout)

    def start(self, rows: int, capacity: int, like: Tensor) -> WindowState:
        return WindowState(like.new_zeros(rows, self.window - 1, self.size))

    def forward(
        self, x: Tensor, state: WindowState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, WindowState | None]:
        before = state or self.start(x.size(0), 0, x)
        history = torch.cat([before.vectors, x], 1)  # (B, window - 1 + T, D)
        windows = history.unfold(1, self.window, 1).transpose(2, 3).flatten(2)  # (B, T, window * D)
        hidden = self.dropout(torch.tanh(self.mix(windows)))
        if state is None:
            return hidden, None
        # The window - 1 embeddings up to each row's last real token.
        first = x.new_full((x.size(0),), x.size(1), dtype=torch.long) if count is None else count
        index = first.unsqueeze(1) + torch.arange(self.window - 1, device=x.device)  # (B, window - 1)
        return hidden, WindowState(history.gather(1, index.unsqueeze(-1).expand(-1, -1, self.size)))


def feedforward_encoder(config: FeedforwardConfig) -> FeedforwardEncoder:
    """A newly initialized feed-forward encoder."""
    return FeedforwardEncoder(config.embedding, config.context_size, config.width, config.dropout)


def neural_bigram_encoder(config: NeuralBigramConfig) -> FeedforwardEncoder:
    """A newly initialized encoder of the last token alone."""
    return FeedforwardEncoder(config.width, 1, config.width)
