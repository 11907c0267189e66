"""Recurrent networks: Elman (1990), LSTM (Hochreiter & Schmidhuber 1997; Gers et al. 2000), GRU (Cho et al. 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.core.protocols import State
from seqwright.layers.elman import ACTIVATIONS, Elman
from seqwright.layers.flatten import PrefixFlatten
from seqwright.layers.recurrent import own_precision
from seqwright.models.language_model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    layers: int = 1
    """Stacked networks, each reading the one below."""
    width: int = 256
    """Size of the hidden state."""
    embedding: int | None = None
    """Size of the token vectors; the width unless given."""
    dropout: float = 0.0
    """Share dropped of what each layer reads and of the output, never between steps (Zaremba et al. 2014)."""
    tied: bool = False
    """Whether the read-out is the embedding transposed (needs embedding = width)."""
    readout: Literal["each", "flatten"] = "each"
    """What predicts: each position's own state, or all states so far flattened to `length` (the lectures' way 2)."""
    length: int | None = None
    """The fixed number of states that a flattened read-out holds."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "embedding", "length")
        check_shares(self, "dropout")
        if self.tied and self.embedding not in (None, self.width):
            raise UserError(f"a tied read-out needs embedding = width; they are {self.embedding} and {self.width}.")
        if self.tied and self.readout == "flatten":
            raise UserError('readout = "flatten" reads length × width numbers; it cannot be tied: set tied = false.')
        if (self.readout == "flatten") != (self.length is not None):
            raise UserError('readout = "flatten" and length go together; give both or neither.')


@dataclass(frozen=True, kw_only=True)
class ElmanConfig(RecurrentConfig):
    activation: Literal["tanh", "relu", "sigmoid", "linear"] = "tanh"
    """What the sum of input and last state passes through."""


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    forget_bias: float = 1.0
    """Where the forget gates begin: above 0 they load_optimizer_state by default (Jozefowicz et al. 2015)."""


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    """Nothing beside what all have."""


@dataclass
class Hidden(State):
    hidden: Tensor  # (B, L, D)


@dataclass
class HiddenAndCell(State):
    hidden: Tensor  # (B, L, D)
    cell: Tensor  # (B, L, D)


class RecurrentEncoder(nn.Module):
    """Reads left to right; all it knows of what it read is its state, so any length will do."""

    context = None
    apart = False

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
                for name in ("bias_ih", "bias_hh"):  # PyTorch's gates are i f g o
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
        with own_precision(self.network, self.dropout(x)) as x:
            begun = state or self.start(x.size(0), 0, x)
            # PyTorch's recurrent networks keep layers first, whatever batch_first says.
            before = tuple(value.transpose(0, 1).contiguous() for _, value in begun.named_tensors())
            given = before if self.has_cell else before[0]
            if count is None:
                output, after = self.network(x, given)
            else:  # stops each row at its last real position, so that the state after is the right one
                packed = pack_padded_sequence(x, count.cpu(), batch_first=True, enforce_sorted=False)
                output, after = self.network(packed, given)
                output, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        if state is None:
            return self.dropout(output), None
        rows_first = [value.transpose(0, 1) for value in (after if self.has_cell else [after])]
        return self.dropout(output), type(begun)(*rows_first)


def recurrent(config: RecurrentConfig, vocabulary: Vocabulary) -> LanguageModel:
    """A recurrent language model with fresh weights."""
    encoder: nn.Module = RecurrentEncoder(config)
    if config.length is not None:
        encoder = PrefixFlatten(encoder, config.width, config.length)
    model = LanguageModel(vocabulary.size, config.embedding or config.width, encoder, tied=config.tied)
    if config.tied:  # a read-out of unit normals would begin with logits of size √D
        nn.init.normal_(model.embedding.weight, std=config.width**-0.5)
    return model
