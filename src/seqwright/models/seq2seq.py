"""Recurrent encoder-decoders: the bottleneck (Sutskever et al. 2014), and attention past it (Bahdanau et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from seqwright.core.batch import Vocabularies
from seqwright.core.config import UserError
from seqwright.core.state import State, per_source
from seqwright.layers.attention import drop_full_mask
from seqwright.layers.attention_scores import SCORES, GlobalAttention
from seqwright.layers.cross_attention import pad
from seqwright.layers.encoder import EncoderOutput
from seqwright.models.encoder_decoder import EncoderDecoder, Tied, settled_tie
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.recurrent import (
    ElmanConfig,
    GRUConfig,
    Hidden,
    HiddenAndCell,
    LSTMConfig,
    RecurrentConfig,
    RecurrentEncoder,
)


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(BidirectionalConfig):
    attention: Literal["none", "parameter-free", "dot", "scaled-dot", "general", "concat", "additive"] = "additive"
    """How the decoder asks the source: not at all (none: it begins with the encoder's last state, and that is all), or
    by one of the lectures' scores. parameter-free adds the mean by scaled dot products to the state and learns nothing
    of its own."""
    input_feeding: bool = False
    """Whether the vector that predicted the last token is part of the next input (Luong et al. 2015). The decoder is
    then a loop of steps, in training too, and slower."""
    tied: Tied | None = None
    """three-way: both embeddings and the read-out are one table; two-way: target embedding and read-out; or none.
    Left out: as much as vocabularies and sizes allow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tied not in (None, "none") and self.embedding not in (None, self.width):
            raise UserError(f"a tied read-out needs embedding = width; they are {self.embedding} and {self.width}.")
        if self.input_feeding and self.attention == "none":
            raise UserError('input_feeding feeds the attention vector back; give attention another kind than "none".')


@dataclass(frozen=True, kw_only=True)
class ElmanSeq2SeqConfig(Seq2SeqConfig):
    cell: ClassVar[type[RecurrentConfig]] = ElmanConfig


@dataclass(frozen=True, kw_only=True)
class LSTMSeq2SeqConfig(Seq2SeqConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class GRUSeq2SeqConfig(Seq2SeqConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


@dataclass
class Read(State):
    """The source as the decoder finds it: its vectors, and the states in which reading ended."""

    vectors: Tensor = per_source()
    """(B, S, D)"""
    keys: Tensor = per_source()
    """(B, S, D): what queries are compared with; (B, S, 0) without attention."""
    mask: Tensor = per_source()
    """(B, S)"""
    last: Tensor = per_source()
    """(B, C, L, D): hidden, and cell where there is one, of every layer."""

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """Sources padded to the longest."""
        length = max(state.mask.size(1) for state in states)
        return [cls(pad(one.vectors, length), pad(one.keys, length), pad(one.mask, length), one.last) for one in states]


@dataclass
class Asking(State):
    """A decoder's own state and, with input feeding, the vector that predicted last."""

    hidden: Hidden | HiddenAndCell
    fed: Tensor  # (R, D), or (R, 0) without input feeding


class RecurrentDecoder(nn.Module):
    """A recurrent network begun where the encoder ended; with attention, its states ask the source, then predict."""

    context = None

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.width = config.width
        self.feeding = config.input_feeding
        embedding = config.embedding or config.width
        self.network = RecurrentEncoder(
            config.cell(
                layers=config.layers,
                width=config.width,
                embedding=embedding + (config.width if config.input_feeding else 0),
                dropout=config.dropout,
            )
        )
        self.ask = None if config.attention == "none" else GlobalAttention(SCORES[config.attention](config.width))
        self.combine = None
        if config.attention not in ("none", "parameter-free"):
            self.combine = nn.Linear(2 * config.width, config.width, bias=False)

    def memory_of(self, reading: EncoderOutput) -> Read:
        assert reading.last is not None
        vectors = reading.vectors
        keys = vectors[..., :0] if self.ask is None else self.ask.keys(vectors)
        return Read(vectors, keys, reading.mask, reading.last)

    def start(self, memory: State, capacity: int) -> Asking:
        assert isinstance(memory, Read)
        hidden = (HiddenAndCell if memory.last.size(1) == 2 else Hidden)(*memory.last.unbind(1))
        fed = memory.vectors.new_zeros(len(memory.mask), self.width if self.feeding else 0)
        return Asking(hidden, fed)

    def forward(
        self, x: Tensor, memory: State, state: Asking | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, Asking | None]:
        assert isinstance(memory, Read)
        begun = self.start(memory, 0) if state is None else state
        if self.feeding:
            output, after = self._fed(x, memory, begun, count)
        else:
            hidden, last = self.network(x, begun.hidden, count)
            output, after = self._asked(hidden, memory), Asking(last, begun.fed)
        return output, None if state is None else after

    @property
    def source_attention(self) -> list[nn.Module]:
        return [] if self.ask is None else [self.ask]

    def _asked(self, hidden: Tensor, memory: Read) -> Tensor:
        """(R, T, D): what predicts, from states (R, T, D). Beams are folded into the query axis."""
        if self.ask is None:
            return hidden
        query = hidden.reshape(memory.mask.size(0), -1, self.width)  # (B, R / B · T, D)
        found = self.ask(query, memory.keys, memory.vectors, mask=drop_full_mask(memory.mask)).view_as(hidden)
        if self.combine is None:
            return hidden + found
        return torch.tanh(self.combine(torch.cat([found, hidden], -1)))

    def _fed(self, x: Tensor, memory: Read, state: Asking, count: Tensor | None) -> tuple[Tensor, Asking]:
        """One position after the other: each needs what the one before found. Rows stand still past their count."""
        outputs = []
        for t in range(x.size(1)):
            given = torch.cat([x[:, t], state.fed], -1).unsqueeze(1)
            hidden, last = self.network(given, state.hidden)
            output = self._asked(hidden, memory)
            outputs.append(output)
            moved = Asking(last, output.squeeze(1))
            state = moved if count is None else _where(t < count, moved, state)
        return torch.cat(outputs, 1), state


def _where(moving: Tensor, after: Asking, before: Asking) -> Asking:
    """Rows that move take the state after, the others keep the one before."""
    held = dict(before.named_tensors())
    chosen = {
        name: torch.where(moving.view(-1, *[1] * (value.dim() - 1)), value, held[name])
        for name, value in after.named_tensors()
    }
    return before.from_tensors(chosen)


def seq2seq(config: Seq2SeqConfig, sizes: Vocabularies) -> EncoderDecoder:
    """A recurrent encoder-decoder with fresh weights."""
    embedding = config.embedding or config.width
    tied = settled_tie(config.tied, sizes) if embedding == config.width else "none"
    return EncoderDecoder(sizes, embedding, BidirectionalEncoder(config), RecurrentDecoder(config), tied=tied)
