"""Language model: token embedding, any causal encoder, language modeling head."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.core.batch import Batch, Source
from seqwright.core.state import State
from seqwright.layers.encoder import CausalEncoder, last_real
from seqwright.layers.heads import TokenHead


class LanguageModel(nn.Module):
    """Embed → encode → linear; the encoder makes it a GPT, an LSTM, a feed-forward model …"""

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
        """Context length of the encoder; None where unlimited."""
        return self.encoder.context

    @property
    def supports_document_mask(self) -> bool:
        """Whether attention can be masked to the documents of a packed row."""
        return self.encoder.supports_document_mask

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """Hidden states (B, T, D) and, where a state was passed, the state after."""
        x = self.embedding(batch.input)
        return self.encoder(x, state) if batch.documents is None else self.encoder(x, documents=batch.documents)

    def encode(self, source: Source) -> Tensor:
        """Hidden states (B, S, D) of a complete text. No mask is needed: a causal encoder never sees right padding."""
        return self.encoder(self.embedding(source.ids))[0]

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        return self.head(self.hidden(batch)[0])

    def start(self, source: Source, *, capacity: int) -> State:
        """The initial decoding state."""
        return self.encoder.start(source.rows, capacity, self.embedding.weight)

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        """Log-probabilities (B, V) of the next token after ids (B, T), and the state after."""
        hidden, after = self.encoder(self.embedding(ids), state, count)
        assert after is not None
        return self.head.log_probs(last_real(hidden, count)), after

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T) by teacher forcing, and the state after where one was passed."""
        hidden, after = self.hidden(batch, state)
        return self.head.score(hidden, batch.target), after
