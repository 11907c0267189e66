"""Recurrent encoder-decoders: a bottleneck (Sutskever et al. 2014), or attention (Bahdanau et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import torch
from torch import Tensor, nn

from seqwright.core.batch import Vocabularies
from seqwright.core.config import UserError
from seqwright.core.state import State, per_source
from seqwright.layers.attention import drop_full_mask
from seqwright.layers.attention_scores import SCORES, GlobalAttention
from seqwright.layers.cross_attention import pad
from seqwright.layers.encoder import EncoderOutput
from seqwright.models.encoder_decoder import EncoderDecoder, Tied, resolve_tied
from seqwright.models.encoders.recurrent import (
    CELLS,
    BidirectionalConfig,
    BidirectionalEncoder,
    Cell,
    Hidden,
    HiddenAndCell,
    RecurrentEncoder,
)


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(BidirectionalConfig):
    attention: Literal["none", "parameter-free", "dot", "scaled-dot", "general", "concat", "additive"] = "additive"
    """Attention to the source by one of the lectures' scores; parameter-free adds the context vector of scaled dot
    products to the decoder state; none is the bottleneck: the decoder starts from the encoder's final state."""
    input_feeding: bool = False
    """Input feeding (Luong et al. 2015): the attentional vector is part of the next input. Training then steps through
    the target one position at a time, and is slower."""
    tied: Tied | None = None
    """Weight tying (Press & Wolf 2017): three-way (both embeddings and the output layer), two-way (target embedding and
    output layer) or none. Default: as much as vocabularies and sizes allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied not in (None, "none") and self.embedding not in (None, self.width):
            raise UserError(f"a tied output layer needs embedding = width; they are {self.embedding} and {self.width}.")
        if self.input_feeding and self.attention == "none":
            raise UserError('input_feeding feeds the attention vector back; give attention another kind than "none".')


@dataclass
class SourceMemory(State):
    """Hidden states of the source, and the encoder's final states."""

    vectors: Tensor = per_source()
    """(B, S, D)"""
    keys: Tensor = per_source()
    """(B, S, D): attention keys; (B, S, 0) without attention."""
    mask: Tensor = per_source()
    """(B, S)"""
    last: Tensor = per_source()
    """(B, C, L, D): final hidden (and, for LSTMs, cell) state of every layer."""

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """Sources padded to the longest."""
        length = max(state.mask.size(1) for state in states)
        return [cls(pad(one.vectors, length), pad(one.keys, length), pad(one.mask, length), one.last) for one in states]


@dataclass
class RecurrentDecoderState(State):
    """The recurrent state and, with input feeding, the last attentional vector."""

    hidden: Hidden | HiddenAndCell
    attentional: Tensor  # (R, D), or (R, 0) without input feeding


class RecurrentDecoder(nn.Module):
    """Recurrent network that starts from the encoder's final state; with attention, its hidden states are combined with
    context vectors."""

    context = None

    def __init__(self, cell: Cell, config: Seq2SeqConfig):
        super().__init__()
        self.width = config.width
        self.feeding = config.input_feeding
        self.network = RecurrentEncoder(
            CELLS[cell](
                layers=config.layers,
                width=config.width,
                embedding=config.input_width + (config.width if config.input_feeding else 0),
                dropout=config.dropout,
            )
        )
        self.ask = None if config.attention == "none" else GlobalAttention(SCORES[config.attention](config.width))
        self.combine = None
        if config.attention not in ("none", "parameter-free"):
            self.combine = nn.Linear(2 * config.width, config.width, bias=False)

    def memory(self, encoded: EncoderOutput) -> SourceMemory:
        assert encoded.last is not None
        vectors = encoded.vectors
        keys = vectors[..., :0] if self.ask is None else self.ask.keys(vectors)
        return SourceMemory(vectors, keys, encoded.mask, encoded.last)

    def start(self, memory: State, capacity: int) -> RecurrentDecoderState:
        assert isinstance(memory, SourceMemory)
        hidden = (HiddenAndCell if memory.last.size(1) == 2 else Hidden)(*memory.last.unbind(1))
        zeros = memory.vectors.new_zeros(len(memory.mask), self.width if self.feeding else 0)
        return RecurrentDecoderState(hidden, zeros)

    def forward(
        self, x: Tensor, memory: State, state: RecurrentDecoderState | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, RecurrentDecoderState | None]:
        assert isinstance(memory, SourceMemory)
        before = self.start(memory, 0) if state is None else state
        if self.feeding:
            output, after = self._input_feeding(x, memory, before, count)
        else:
            hidden, last = self.network(x, before.hidden, count)
            output, after = self._attend(hidden, memory), RecurrentDecoderState(last, before.attentional)
        return output, None if state is None else after

    @property
    def source_attention(self) -> list[nn.Module]:
        return [] if self.ask is None else [self.ask]

    def _attend(self, hidden: Tensor, memory: SourceMemory) -> Tensor:
        """Attentional vectors (R, T, D) from hidden states (R, T, D). Beams are folded into the query axis."""
        if self.ask is None:
            return hidden
        query = hidden.reshape(memory.mask.size(0), -1, self.width)  # (B, R / B · T, D)
        context = self.ask(query, memory.keys, memory.vectors, mask=drop_full_mask(memory.mask)).view_as(hidden)
        if self.combine is None:
            return hidden + context
        return torch.tanh(self.combine(torch.cat([context, hidden], -1)))

    def _input_feeding(
        self, x: Tensor, memory: SourceMemory, state: RecurrentDecoderState, count: Tensor | None
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """One position after the other, since each needs the attentional vector before it; a row's state is kept past
        its count."""
        outputs = []
        for t in range(x.size(1)):
            inputs = torch.cat([x[:, t], state.attentional], -1).unsqueeze(1)
            hidden, last = self.network(inputs, state.hidden)
            output = self._attend(hidden, memory)
            outputs.append(output)
            after = RecurrentDecoderState(last, output.squeeze(1))
            state = after if count is None else _where(t < count, after, state)
        return torch.cat(outputs, 1), state


def _where(real: Tensor, after: RecurrentDecoderState, before: RecurrentDecoderState) -> RecurrentDecoderState:
    """The state after for rows (R,) that are real, the state before for the others."""
    kept = dict(before.named_tensors())
    chosen = {
        name: torch.where(real.view(-1, *[1] * (value.dim() - 1)), value, kept[name])
        for name, value in after.named_tensors()
    }
    return before.from_tensors(chosen)


def seq2seq(cell: Cell, config: Seq2SeqConfig, sizes: Vocabularies) -> EncoderDecoder:
    """A newly initialized recurrent encoder-decoder."""
    tied = resolve_tied(config.tied, sizes) if config.input_width == config.width else "none"
    encoder, decoder = BidirectionalEncoder(cell, config), RecurrentDecoder(cell, config)
    return EncoderDecoder(sizes, config.input_width, encoder, decoder, tied=tied)


rnn_seq2seq = partial(seq2seq, "rnn")
lstm_seq2seq = partial(seq2seq, "lstm")
gru_seq2seq = partial(seq2seq, "gru")
