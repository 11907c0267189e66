"""The encoder-decoder: a source read in full, then a language model that may ask it. Written once for every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from seqwright.core.batch import Batch, Source, Vocabularies
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.layers.encoder import Encoder, EncoderOutput, last_real
from seqwright.layers.heads import TokenHead

Tied = Literal["three-way", "two-way", "none"]


class Decoder(Protocol):
    """A causal encoder with a memory to ask."""

    width: int
    context: int | None

    def memory_of(self, reading: EncoderOutput) -> State:
        """What will be asked, computed once: a state of `per_source` fields."""
        ...

    def start(self, memory: State, capacity: int) -> State:
        """Before anything was said, one row for each source."""
        ...

    def __call__(
        self, x: Tensor, memory: State, state: State | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """(R, T, D), and the state after where one was given. Rows of one source are neighbors."""
        ...

    @property
    def source_attention(self) -> list[nn.Module]:
        """The modules that ask the memory, none in a bottleneck: each with `weights` for what it was called with."""
        ...


@dataclass
class Translating(State):
    """What was read, once a source, and what was said, once a row."""

    memory: State
    said: State


class EncoderDecoder(nn.Module):
    """Embed, read, embed, say, read out. What reader and decoder are decides what the model is called."""

    def __init__(self, sizes: Vocabularies, embedding: int, reader: nn.Module, decoder: nn.Module, *, tied: Tied):
        super().__init__()
        self.source_embedding = (
            nn.Embedding(sizes.source.size, embedding) if sizes.source else nn.Linear(sizes.features, embedding)
        )
        self.target_embedding = (
            self.source_embedding if tied == "three-way" else nn.Embedding(sizes.target.size, embedding)
        )
        self.reader: Encoder = reader  # type: ignore[assignment]
        self.decoder: Decoder = decoder  # type: ignore[assignment]
        self.head = TokenHead(self.decoder.width, sizes.target.size, bias=tied == "none")
        if tied != "none":
            self.head.readout.weight = self.target_embedding.weight
        # A read-out of unit normals would begin with logits of size √D; patches begin as large as tokens.
        for vectors, numbers in {self.source_embedding: sizes.features or 1, self.target_embedding: 1}.items():
            nn.init.normal_(vectors.weight, std=(numbers * embedding) ** -0.5)

    @property
    def context(self) -> int | None:
        return self.decoder.context

    @property
    def source_attention(self) -> list[nn.Module]:
        """Where it can be heard what is attended in the source."""
        return self.decoder.source_attention

    def read(self, source: Source) -> State:
        """The memory of a source."""
        return self.decoder.memory_of(self._reading(source))

    def encode(self, source: Source) -> Tensor:
        """(B, S, D): the source as the decoder finds it."""
        return self._reading(source).vectors

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """(B, T, D), and the state after where one was given, whose memory then stands for the source."""
        x = self.target_embedding(batch.input)
        if state is None:
            return self.decoder(x, self.read(batch.source))
        return self._go_on(x, state, None)

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def start(self, source: Source, *, capacity: int) -> Translating:
        memory = self.read(source)
        return Translating(memory, self.decoder.start(memory, capacity))

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        hidden, after = self._go_on(self.target_embedding(ids), state, count)
        return self.head.log_probs(last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after

    def _reading(self, source: Source) -> EncoderOutput:
        given = source.ids if source.features is None else source.features.to(self.source_embedding.weight.dtype)
        assert given is not None, "an encoder-decoder needs a source"
        return self.reader(self.source_embedding(given), source.mask)

    def _go_on(self, x: Tensor, state: State, count: Tensor | None) -> tuple[Tensor, Translating]:
        assert isinstance(state, Translating)
        hidden, said = self.decoder(x, state.memory, state.said, count)
        assert said is not None
        return hidden, Translating(state.memory, said)


def settled_tie(tied: Tied | None, sizes: Vocabularies) -> Tied:
    """What is tied: what was asked for, otherwise as much as the vocabularies allow."""
    if tied == "three-way" and not sizes.joint:
        raise UserError('tied = "three-way" needs one vocabulary for both sides: set tokenizer.joint = true.')
    return tied or ("three-way" if sizes.joint else "two-way")
