"""The window network of Bengio et al. (2003): a hidden layer over the last few tokens; over one, the simple model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwright.core.batch import Vocabulary
from seqwright.core.config import check_shares, check_sizes
from seqwright.core.protocols import State
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class NeuralBigramConfig:
    width: int = 128
    """Size of the token vectors and of the hidden layer."""

    def __post_init__(self) -> None:
        check_sizes(self, "width")


@dataclass(frozen=True, kw_only=True)
class FeedforwardConfig:
    context_size: int = 8
    """How many tokens predict the next."""
    width: int = 256
    """Size of the hidden layer."""
    embedding: int = 64
    """Size of the token vectors."""
    dropout: float = 0.0
    """Share of the hidden layer dropped in training."""

    def __post_init__(self) -> None:
        check_sizes(self, "context_size", "width", "embedding")
        check_shares(self, "dropout")


@dataclass
class Recent(State):
    """The vectors just before the next one; zeros before anything was read."""

    vectors: Tensor  # (B, window - 1, D)


class FeedforwardEncoder(nn.Module):
    """tanh of a linear map of the last `window` vectors: an n-gram whose histories share what they have in common."""

    context = None
    apart = False

    def __init__(self, size: int, window: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.width = width
        self.window = window
        self.size = size
        self.mix = nn.Linear(window * size, width)
        self.dropout = nn.Dropout(dropout)

    def start(self, rows: int, capacity: int, like: Tensor) -> Recent:
        return Recent(like.new_zeros(rows, self.window - 1, self.size))

    def forward(
        self, x: Tensor, state: Recent | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, Recent | None]:
        begun = state or self.start(x.size(0), 0, x)
        joined = torch.cat([begun.vectors, x], 1)  # (B, window - 1 + T, D)
        windows = joined.unfold(1, self.window, 1).transpose(2, 3).flatten(2)  # (B, T, window * D)
        hidden = self.dropout(torch.tanh(self.mix(windows)))
        if state is None:
            return hidden, None
        first = x.new_full((x.size(0),), x.size(1), dtype=torch.long) if count is None else count
        index = first.unsqueeze(1) + torch.arange(self.window - 1, device=x.device)  # (B, window - 1)
        return hidden, Recent(joined.gather(1, index.unsqueeze(-1).expand(-1, -1, self.size)))


def window(config: FeedforwardConfig, vocabulary: Vocabulary) -> LanguageModel:
    """A window network with fresh weights."""
    encoder = FeedforwardEncoder(config.embedding, config.context_size, config.width, config.dropout)
    return LanguageModel(vocabulary.size, config.embedding, encoder)


def simple(config: NeuralBigramConfig, vocabulary: Vocabulary) -> LanguageModel:
    """One token in, its successor out: a neural bigram, the first cell of a recurrent network that never goes on."""
    return LanguageModel(vocabulary.size, config.width, FeedforwardEncoder(config.width, 1, config.width))
