"""Recurrent encoders of a source: Elman, LSTM and GRU, unidirectional or bidirectional."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.attention import drop_full_mask
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.recurrent import run_padded, without_autocast
from seqwright.models.encoders.recurrent import ElmanConfig, GRUConfig, LSTMConfig, RecurrentConfig

NETWORKS: dict[type[RecurrentConfig], Callable[..., nn.RNNBase]] = {
    ElmanConfig: nn.RNN,
    LSTMConfig: nn.LSTM,
    GRUConfig: nn.GRU,
}


@dataclass(frozen=True, kw_only=True)
class BidirectionalConfig:
    layers: int = 1
    """Number of stacked layers (per direction)."""
    width: int = 256
    """Hidden size; a bidirectional encoder gives half of it to each direction."""
    embedding: int | None = None
    """Embedding size; as width by default."""
    bidirectional: bool = True
    """Bidirectional recurrence (Schuster & Paliwal 1997)."""
    dropout: float = 0.2
    """Dropout rate of each layer's input and of the output, never of recurrent connections (Zaremba et al. 2014)."""

    cell: ClassVar[type[RecurrentConfig]]

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "embedding")
        check_shares(self, "dropout")
        if self.bidirectional and self.width % 2:
            raise UserError(f"a bidirectional encoder halves the width: it must be even, not {self.width}.")


class BidirectionalEncoder(nn.Module):
    """Recurrent encoder of a padded source; its final states are part of the output."""

    context = None

    def __init__(self, config: BidirectionalConfig):
        super().__init__()
        self.width = config.width
        self.directions = 2 if config.bidirectional else 1
        self.network = NETWORKS[config.cell](
            config.embedding or config.width,
            config.width // self.directions,
            config.layers,
            batch_first=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
            bidirectional=config.bidirectional,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.causal = not config.bidirectional

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        with without_autocast(self.network, self.dropout(x)) as x:
            # Padding needs care (decision 125); on a CPU, a batch without any takes torch.nn's own path.
            vectors, last = self.network(x) if drop_full_mask(mask) is None else run_padded(self.network, x, mask)
        last = torch.stack(last if isinstance(last, tuple) else (last,))  # (C, L · directions, B, D / directions)
        last = (
            last.view(len(last), -1, self.directions, *last.shape[2:]).permute(3, 0, 1, 2, 4).flatten(-2)
        )  # (B, C, L, D)
        return EncoderOutput(self.dropout(vectors), mask, last)
