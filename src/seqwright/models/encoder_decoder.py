"""Encoder-decoder: an encoder of the source, and a causal decoder that may attend to it."""

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
    """A causal encoder conditioned on the memory of a source."""

    width: int
    context: int | None

    def memory(self, encoded: EncoderOutput) -> State:
        """The encoder output as the decoder needs it, computed once: a state of `per_source` fields."""
        ...

    def start(self, memory: State, capacity: int) -> State:
        """The initial state, one row for each source."""
        ...

    def __call__(
        self, x: Tensor, memory: State, state: State | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """Hidden states (R, T, D), and the state after where one was passed. Rows of one source are adjacent."""
        ...

    @property
    def source_attention(self) -> list[nn.Module]:
        """The modules that attend to the memory, none in a bottleneck."""
        ...


@dataclass
class EncoderDecoderState(State):
    """The memory of each source, and the decoder's state of each row."""

    memory: State
    decoder: State


class EncoderDecoder(nn.Module):
    """Embed and encode the source, embed and decode the target, linear output layer."""

    def __init__(self, sizes: Vocabularies, embedding: int, encoder: nn.Module, decoder: nn.Module, *, tied: Tied):
        super().__init__()
        self.source_embedding = (
            nn.Embedding(sizes.source.size, embedding) if sizes.source else nn.Linear(sizes.features, embedding)
        )
        self.target_embedding = (
            self.source_embedding if tied == "three-way" else nn.Embedding(sizes.target.size, embedding)
        )
        self.reader: Encoder = encoder  # type: ignore[assignment]
        self.decoder: Decoder = decoder  # type: ignore[assignment]
        self.head = TokenHead(self.decoder.width, sizes.target.size, bias=tied == "none")
        if tied != "none":
            self.head.readout.weight = self.target_embedding.weight
        # Unit normals would give initial logits of size √D; embeddings of patches start as large as those of tokens.
        for table, inputs in {self.source_embedding: sizes.features or 1, self.target_embedding: 1}.items():
            nn.init.normal_(table.weight, std=(inputs * embedding) ** -0.5)

    @property
    def context(self) -> int | None:
        """Context length of the decoder; None where unlimited."""
        return self.decoder.context

    @property
    def source_attention(self) -> list[nn.Module]:
        """The modules that attend to the source, none in a bottleneck."""
        return self.decoder.source_attention

    def memory(self, source: Source) -> State:
        """The memory of a source."""
        return self.decoder.memory(self._encoded(source))

    def encode(self, source: Source) -> Tensor:
        """(B, S, D): hidden states of the source."""
        return self._encoded(source).vectors

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D), and the state after where one was passed, whose memory then replaces the source."""
        x = self.target_embedding(batch.input)
        if state is None:
            return self.decoder(x, self.memory(batch.source))
        return self._decode(x, state, None)

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def start(self, source: Source, *, capacity: int) -> EncoderDecoderState:
        """The initial decoding state."""
        memory = self.memory(source)
        return EncoderDecoderState(memory, self.decoder.start(memory, capacity))

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, State]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        hidden, after = self._decode(self.target_embedding(ids), state, count)
        return self.head.log_probs(hidden if all_positions else last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) by teacher forcing, and the state after where one was passed."""
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after

    def _encoded(self, source: Source) -> EncoderOutput:
        inputs = source.ids if source.features is None else source.features.to(self.source_embedding.weight.dtype)
        assert inputs is not None, "an encoder-decoder needs a source"
        return self.reader(self.source_embedding(inputs), source.mask)

    def _decode(self, x: Tensor, state: State, count: Tensor | None) -> tuple[Tensor, EncoderDecoderState]:
        assert isinstance(state, EncoderDecoderState)
        hidden, after = self.decoder(x, state.memory, state.decoder, count)
        assert after is not None
        return hidden, EncoderDecoderState(state.memory, after)


def resolve_tied(tied: Tied | None, sizes: Vocabularies) -> Tied:
    """The configured weight tying; by default as much as the vocabularies allow."""
    if tied == "three-way" and not sizes.joint:
        raise UserError('tied = "three-way" needs one vocabulary for both sides: set tokenizer.joint = true.')
    return tied or ("three-way" if sizes.joint else "two-way")
