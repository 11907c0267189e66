"""Recurrent encoders: Elman (1990), LSTM (Hochreiter & Schmidhuber 1997; Gers et al. 2000), GRU (Cho et al. 2014).

`RecurrentEncoder` is causal and carries its state, for language models and decoders; `BidirectionalEncoder` encodes a
complete source in one or both directions (Schuster & Paliwal 1997).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqwright.core.config import UserError, check_not_negative, check_shares, check_sizes
from seqwright.core.state import State
from seqwright.layers.attention import drop_full_mask
from seqwright.layers.elman import ACTIVATIONS, Elman
from seqwright.layers.encoder import EncoderConfig, EncoderOutput
from seqwright.layers.mogrifier import MogrifierLSTM
from seqwright.layers.recurrent import StackedRNN, dropout, half_precision, run_layers, run_padded, without_autocast

Cell = Literal["rnn", "lstm", "gru"]


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(EncoderConfig):
    """Options of every cell; its class picks the cell."""

    layers: int = 1
    """Number of stacked layers."""
    width: int = 256
    """Hidden size."""
    embedding: int | None = None
    """Embedding size; as width by default."""
    dropout: float = 0.0
    """Dropout rate of each layer's input and of the output, never of recurrent connections (Zaremba et al. 2014)."""
    input_dropout: float | None = None
    """Dropout rate of the embeddings; as dropout by default."""
    inter_layer_dropout: float | None = None
    """Dropout rate between layers; as dropout by default."""
    output_dropout: float | None = None
    """Dropout rate of the output; as dropout by default."""
    locked_dropout: bool = False
    """Locked (variational) dropout: one mask for all positions of a row, anew for each batch (Gal & Ghahramani 2016),
    at the rates of dropout."""
    weight_dropout: float = 0.0
    """Dropout rate of the hidden-to-hidden weights, one mask for each batch (DropConnect in AWD-LSTM, Merity et al.
    2018, who use 0.5)."""
    embedding_dropout: float = 0.0
    """Rate at which token types are dropped from the embedding, wherever they occur in a batch (Gal & Ghahramani 2016;
    Merity et al. 2018 use 0.1)."""
    last_width: int | None = None
    """Hidden size of the last layer, at most width; as width by default. As large as embedding, it can be tied."""

    autoregressive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "embedding", "last_width")
        check_shares(self, "dropout", "input_dropout", "inter_layer_dropout", "output_dropout")
        check_shares(self, "weight_dropout", "embedding_dropout")
        if self.output_width > self.width:
            raise UserError(f"last_width is {self.last_width}, more than width {self.width}: lower it, or raise width.")

    @property
    def input_width(self) -> int:
        return self.embedding or self.width

    @property
    def output_width(self) -> int:
        return self.last_width or self.width

    @property
    def token_dropout(self) -> float:
        return self.embedding_dropout

    def network(self) -> nn.Module:
        """The newly initialized cells of all layers."""
        if not self.has_separate_layers:
            return self.cells(self.input_width, self.width, self.layers, dropout=self._dropout_between_layers)
        widths = [self.input_width, *[self.width] * (self.layers - 1), self.output_width]
        blocks = [self.cells(size, width, 1, dropout=0.0) for size, width in pairwise(widths)]
        return StackedRNN(blocks, dropout=self._dropout_between_layers)  # type: ignore[arg-type]

    @property
    def has_separate_layers(self) -> bool:
        """Whether each layer is a module of its own."""
        return self.output_width != self.width

    @abstractmethod
    def cells(self, size: int, width: int, layers: int, *, dropout: float) -> nn.Module:
        """Newly initialized layers of one width."""

    @property
    def _dropout_between_layers(self) -> float:
        rate = self.dropout if self.inter_layer_dropout is None else self.inter_layer_dropout
        return rate if self.layers > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class ElmanConfig(RecurrentConfig):
    activation: Literal["tanh", "relu", "sigmoid", "linear"] = "tanh"
    """Activation of the recurrence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        regularized = self.weight_dropout or self.locked_dropout or self.output_width != self.width
        if self.activation in ACTIVATIONS and regularized:
            raise UserError(
                f"weight_dropout, locked_dropout and last_width need PyTorch's own cells: activation tanh or relu, not"
                f" {self.activation}."
            )

    def cells(self, size: int, width: int, layers: int, *, dropout: float) -> nn.Module:
        if self.activation in ("tanh", "relu"):
            return nn.RNN(size, width, layers, nonlinearity=self.activation, batch_first=True, dropout=dropout)
        return Elman(size, width, layers, activation=ACTIVATIONS[self.activation], dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(RecurrentConfig):
    forget_bias: float = 1.0
    """Initial bias of the forget gates; above 0 the cell remembers by default (Jozefowicz et al. 2015)."""
    mogrifier_rounds: int = 0
    """Mogrifier LSTM (Melis et al. 2020, who use 5): rounds in which input and hidden state gate each other before
    every step; 0 for none. No fused kernel computes it, so that it is several times slower."""
    mogrifier_rank: int | None = None
    """Rank of the matrices of those rounds (Melis et al. 2020 use 40 to 90); full by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "mogrifier_rounds")
        check_sizes(self, "mogrifier_rank")
        if self.mogrifier_rank is not None and not self.mogrifier_rounds:
            raise UserError("mogrifier_rank is that of mogrifier_rounds: set both, or neither.")

    @property
    def has_separate_layers(self) -> bool:
        return super().has_separate_layers or self.mogrifier_rounds > 0

    def cells(self, size: int, width: int, layers: int, *, dropout: float) -> nn.Module:
        network: nn.Module
        if self.mogrifier_rounds:
            network = MogrifierLSTM(size, width, rounds=self.mogrifier_rounds, rank=self.mogrifier_rank)
        else:
            network = nn.LSTM(size, width, layers, batch_first=True, dropout=dropout)
        for layer in range(layers):
            for name in ("bias_ih", "bias_hh"):  # gate order i f g o; both biases are added
                bias = network.get_parameter(f"{name}_l{layer}")
                with torch.no_grad():
                    bias[width : 2 * width] = self.forget_bias if name == "bias_ih" else 0.0
        return network


@dataclass(frozen=True, kw_only=True)
class GRUConfig(RecurrentConfig):
    def cells(self, size: int, width: int, layers: int, *, dropout: float) -> nn.Module:
        return nn.GRU(size, width, layers, batch_first=True, dropout=dropout)


CELLS: dict[Cell, type[RecurrentConfig]] = {"rnn": ElmanConfig, "lstm": LSTMConfig, "gru": GRUConfig}


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
    masks_documents = False

    def __init__(self, config: RecurrentConfig):
        super().__init__()
        self.width = config.output_width
        self.state_width = config.width
        self.layers = config.layers
        self.locked, self.weight_dropout = config.locked_dropout, config.weight_dropout
        rates = (config.input_dropout, config.output_dropout)
        self.input_dropout, self.output_dropout = (config.dropout if rate is None else rate for rate in rates)
        self.network = config.network()
        self.has_cell = isinstance(config, LSTMConfig)

    def start(self, rows: int, capacity: int, like: Tensor) -> Hidden | HiddenAndCell:
        zeros = like.new_zeros(rows, self.layers, self.state_width)
        return HiddenAndCell(zeros, zeros.clone()) if self.has_cell else Hidden(zeros)

    def forward(
        self, x: Tensor, state: Hidden | HiddenAndCell | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        output, after = self.activations(x, state, count)
        return self.drop_output(output), after

    def drop_output(self, output: Tensor) -> Tensor:
        """Dropout of the last layer's output."""
        return dropout(output, self.output_dropout, training=self.training, locked=self.locked)

    def activations(
        self, x: Tensor, state: Hidden | HiddenAndCell | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """Hidden states of the last layer before dropout, and the state after where one was passed."""
        x = dropout(x, self.input_dropout, training=self.training, locked=self.locked)
        half = half_precision(self.network, x)
        with without_autocast(self.network, x) as x:
            before = state or self.start(x.size(0), 0, x)
            # torch.nn's recurrent networks have states (L, B, D), whatever batch_first says.
            layers_first = tuple(value.transpose(0, 1).contiguous() for _, value in before.named_tensors())
            initial = layers_first if self.has_cell else layers_first[0]
            if count is None and self._runs_by_layer(x):
                output, states = run_layers(
                    self.network,  # type: ignore[arg-type]
                    x,
                    layers_first,
                    locked=self.locked,
                    weight_dropout=self.weight_dropout,
                    half=half,
                )
                after: Any = states if self.has_cell else states[0]
            elif count is None:
                output, after = self.network(x, initial)
            else:  # packed, so that the state after is that of each row's last real position
                packed = pack_padded_sequence(x, count.cpu(), batch_first=True, enforce_sorted=False)
                output, after = self.network(packed, initial)
                output, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
        if state is None:
            return output, None
        rows_first = [value.transpose(0, 1) for value in (after if self.has_cell else [after])]
        return output, type(before)(*rows_first)

    def _runs_by_layer(self, x: Tensor) -> bool:
        """Whether layers run one after the other: in training on a GPU, or where masks are not torch.nn's."""
        own_masks = bool(self.locked or self.weight_dropout)
        return self.training and (x.is_cuda or own_masks) and isinstance(self.network, nn.RNNBase | StackedRNN)


@dataclass(frozen=True, kw_only=True)
class BidirectionalConfig(EncoderConfig):
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

    poolings: ClassVar[tuple[str, ...]] = ("max", "last", "backward", "final", "mean", "attention")
    head_defaults: ClassVar[dict[str, dict[str, str]]] = {"images": {"pooling": "last"}}

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "width", "embedding")
        check_shares(self, "dropout")
        if self.bidirectional and self.width % 2:
            raise UserError(f"a bidirectional encoder halves the width: it must be even, not {self.width}.")

    @property
    def input_width(self) -> int:
        return self.embedding or self.width

    @property
    def output_width(self) -> int:
        return self.width

    @property
    def causal(self) -> bool:
        return not self.bidirectional

    def check_pooling(self, names: tuple[str, ...]) -> None:
        if "backward" in names and not self.bidirectional:
            raise UserError('pooling = "backward" reads the backward direction; set bidirectional = true.')


NETWORKS: dict[Cell, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class BidirectionalEncoder(nn.Module):
    """Recurrent encoder of a padded source; its final states are part of the output."""

    context = None

    def __init__(self, cell: Cell, config: BidirectionalConfig):
        super().__init__()
        self.width = config.width
        self.directions = 2 if config.bidirectional else 1
        self.network = NETWORKS[cell](
            config.input_width,
            config.width // self.directions,
            config.layers,
            batch_first=True,
            dropout=config.dropout if config.layers > 1 else 0.0,
            bidirectional=config.bidirectional,
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        half = half_precision(self.network, x)
        with without_autocast(self.network, self.dropout(x)) as x:
            # Padding needs care (decision 125); on a CPU, a batch without any takes torch.nn's own path.
            if drop_full_mask(mask) is None:
                vectors, last = self.network(x)
            else:
                vectors, last = run_padded(self.network, x, mask, half=half)
        last = torch.stack(last if isinstance(last, tuple) else (last,))  # (C, L · directions, B, D / directions)
        last = (
            last.view(len(last), -1, self.directions, *last.shape[2:]).permute(3, 0, 1, 2, 4).flatten(-2)
        )  # (B, C, L, D)
        return EncoderOutput(self.dropout(vectors), mask, last)


bidirectional_rnn = partial(BidirectionalEncoder, "rnn")
bidirectional_lstm = partial(BidirectionalEncoder, "lstm")
bidirectional_gru = partial(BidirectionalEncoder, "gru")
