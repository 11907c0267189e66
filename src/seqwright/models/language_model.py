"""The language model: an embedding, any causal encoder, a token head. The lectures' pipeline, written once."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.core.batch import Batch, Source
from seqwright.core.protocols import State
from seqwright.layers.encoder import CausalEncoder, last_real
from seqwright.layers.heads import TokenHead


class LanguageModel(nn.Module):
    """Vectorize → embed → encode → linear. What the encoder is decides what the model is called."""

    def __init__(
        self, vocabulary: int, embedding: int, encoder: nn.Module, *, tied: bool = False, readout_bias: bool = True
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.encoder: CausalEncoder = encoder  # type: ignore[assignment]
        self.head = TokenHead(self.encoder.width, vocabulary, bias=readout_bias)
        if tied:
            self.head.readout.weight = self.embedding.weight

    @property
    def context(self) -> int | None:
        return self.encoder.context

    @property
    def apart(self) -> bool:
        """Whether it can keep the documents of a row apart."""
        return self.encoder.apart

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """(B, T, D), and the state after where one was given."""
        x = self.embedding(batch.input)
        return self.encoder(x, state) if batch.documents is None else self.encoder(x, documents=batch.documents)

    def vectors(self, source: Source) -> Tensor:
        """(B, S, D) of a text that is given in full; what stands behind it is not seen."""
        return self.encoder(self.embedding(source.ids))[0]

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def start(self, source: Source, *, capacity: int) -> State:
        return self.encoder.start(source.rows, capacity, self.embedding.weight)

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        hidden, after = self.encoder(self.embedding(ids), state, count)
        assert after is not None
        return self.head.log_probs(last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after
