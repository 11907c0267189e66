"""Recurrent language models: Elman (1990), LSTM (Hochreiter & Schmidhuber 1997; Gers et al. 2000), GRU (Cho et al.
2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.core.state import State
from seqwright.layers.elman import ACTIVATIONS, Elman
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.recurrent import without_autocast
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    layers: int = 1
    """Number of stacked layers."""
    width: int = 256
    """Hidden size."""
    embedding: int | None = None
    """Embedding size; as width by default."""
    dropout: float = 0.0
    """Dropout rate of each layer's input and of the output, never of recurrent connections (Zaremba et al. 2014)."""
    tied: bool = False
    """Tie the output layer to the embedding (needs embedding = width)."""
    readout: Literal["each", "flatten"] = "each"
    """Input of the output layer: each position's hidden state (each), or all so far, flattened and zero-padded to
    `length` (flatten, the lectures' way 2)."""
    length: int | None = None
    """Fixed number of positions of readout = "flatten"."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "embedding", "length")
        check_shares(self, "dropout")
        if self.tied and self.embedding not in (None, self.width):
            raise UserError(f"tied = true needs embedding = width; they are {self.embedding} and {self.width}.")
        if self.tied and self.readout == "flatten":
            raise UserError('readout = "flatten" has length × width inputs and cannot be tied: set tied = false.')
        if (self.readout == "flatten") != (self.length is not None):
            raise UserError('readout = "flatten" and length go together; give both or neither.')


@dataclass(frozen=True, kw_only=True)
class ElmanConfig(RecurrentConfig):
    activation: Literal["tanh", "relu", "sigmoid", "linear"] = "tanh"
    """Activation of the recurrence."""


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    forget_bias: float = 1.0
    """Initial bias of the forget gates; above 0 the cell remembers by default (Jozefowicz et al. 2015)."""


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """No further options."""


@dataclass
class Hidden(State):
    """Hidden states of all layers."""

    hidden: Tensor  # (B, L, D)


@dataclass
class HiddenAndCell(State):
    """Hidden and cell states of all layers of an LSTM."""

    hidden: Tensor  # (B, L, D)
    cell: Tensor  # (B, L, D)


class RecurrentEncoder(nn.Module):
    """Unidirectional recurrent encoder of unlimited context length; its state is the hidden (and cell) state."""

    context = None
    supports_document_mask = False

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.width = config.width
        self.layers = config.layers
        self.dropout = nn.Dropout(config.dropout)
        between = config.dropout if config.layers > 1 else 0.0
        sizes = (config.embedding or config.width, config.width, config.layers)
        self.network: nn.Module
        if isinstance(config, LSTMConfig):
            self.network = nn.LSTM(*sizes, batch_first=True, dropout=between)
            for layer in range(config.layers):
                for name in ("bias_ih", "bias_hh"):  # gate order i f g o; both biases are added
                    bias = self.network.get_parameter(f"{name}_l{layer}")
                    with torch.no_grad():
                        bias[config.width : 2 * config.width] = config.forget_bias if name == "bias_ih" else 0.0
        elif isinstance(config, GRUConfig):
            self.network = nn.GRU(*sizes, batch_first=True, dropout=between)
        else:
            assert isinstance(config, ElmanConfig)
            if config.activation in ("tanh", "relu"):
                self.network = nn.RNN(*sizes, nonlinearity=config.activation, batch_first=True, dropout=between)
            else:
                self.network = Elman(*sizes, activation=ACTIVATIONS[config.activation], dropout=between)
        self.has_cell = isinstance(config, LSTMConfig)

    def start(self, rows: int, capacity: int, like: Tensor) -> Hidden | HiddenAndCell:
        zeros = like.new_zeros(rows, self.layers, self.width)
        return HiddenAndCell(zeros, zeros.clone()) if self.has_cell else Hidden(zeros)

    def forward(
        self, x: Tensor, state: Hidden | HiddenAndCell | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        with without_autocast(self.network, self.dropout(x)) as x:
            before = state or self.start(x.size(0), 0, x)
            # torch.nn's recurrent networks have states (L, B, D), whatever batch_first says.
            layers_first = tuple(value.transpose(0, 1).contiguous() for _, value in before.named_tensors())
            initial = layers_first if self.has_cell else layers_first[0]
            if count is None:
                output, after = self.network(x, initial)
            else:  # packed, so that the state after is that of each row's last real position
                packed = pack_padded_sequence(x, count.cpu(), batch_first=True, enforce_sorted=False)
                output, after = self.network(packed, initial)
                output, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        if state is None:
            return self.dropout(output), None
        rows_first = [value.transpose(0, 1) for value in (after if self.has_cell else [after])]
        return self.dropout(output), type(before)(*rows_first)


def recurrent(config: RecurrentConfig, vocabulary: Vocabulary) -> LanguageModel:
    """A newly initialized recurrent language model."""
    encoder: nn.Module = RecurrentEncoder(config)
    if config.length is not None:
        encoder = PrefixFlatten(encoder, config.width, config.length)
    model = LanguageModel(vocabulary.size, config.embedding or config.width, encoder, tied=config.tied)
    if config.tied:  # nn.Embedding's unit normals would give initial logits of size √D
        nn.init.normal_(model.embedding.weight, std=config.width**-0.5)
    return model
