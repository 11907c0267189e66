"""The reader: embed, encode, pool, answer. The lectures' pipeline for what is given in full, written once.

A classifier, a tagger, BERT and ViT are combinations of these four parts; the names of embedding and encoder are those
of the language model, so that one begins with the other's weights.
"""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, OutputSpec, Source
from seqwright.core.protocols import Head
from seqwright.core.state import State
from seqwright.layers.cross_entropy import token_log_probs
from seqwright.layers.encoder import Encoder, EncoderOutput
from seqwright.layers.heads import ClassHead, MultiLabelHead, RegressionHead, TokenHead
from seqwright.layers.pooling import Pooling


class Tokens(nn.Embedding):
    """The vectors of ids and, where texts come in parts, of the part each stands in (Devlin et al. 2019)."""

    def __init__(self, vocabulary: int, width: int, *, segments: int = 1):
        super().__init__(vocabulary, width)
        self.segments = nn.Embedding(segments, width) if segments > 1 else None

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.ids is not None
        x = super().forward(source.ids)  # (B, S, D)
        return x if self.segments is None or source.segments is None else x + self.segments(source.segments)


class Features(nn.Linear):
    """A linear map of what is no token: patches of an image, frames of a recording."""

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.features is not None
        return super().forward(source.features.to(self.weight.dtype))  # (B, S, D)


class EncoderModel(nn.Module):
    """Vectorize → embed → encode → pool → answer. What its parts are decides what the model is called."""

    def __init__(self, embedding: nn.Module, encoder: nn.Module, pooling: Pooling, body: nn.Module, head: nn.Module):
        super().__init__()
        self.embedding = embedding
        self.encoder: Encoder = encoder  # type: ignore[assignment]
        self.pooling = pooling
        self.body = body
        self.head: Head = head  # type: ignore[assignment]

    @property
    def context(self) -> int | None:
        return self.encoder.context

    def read(self, source: Source) -> EncoderOutput:
        """Every position's vector."""
        return self.encoder(self.embedding(source), source.mask)

    def encode(self, source: Source) -> Tensor:
        return self.read(source).vectors

    def pooled(self, source: Source) -> Tensor:
        """What stands for a text, before any layer of its own answer."""
        return self.pooling(self.read(source), source)

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """What the head reads, aligned with batch.target. A reader carries no state."""
        return self.body(self.pooled(batch.source)), None

    @property
    def models_source(self) -> bool:
        """Whether the next token can be asked of a position: it knows only what stands before it, in vectors as wide
        as the embedding's."""
        wide = isinstance(self.embedding, Tokens) and self.embedding.embedding_dim == self.encoder.width
        return wide and getattr(self.encoder, "causal", False)

    def hidden_and_lm_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the head reads, and the mean nll of each row's own tokens under the transposed embedding, summed."""
        source = batch.source
        assert source.ids is not None
        assert isinstance(self.embedding, Tokens)
        reading = self.read(source)
        following = source.ids[:, 1:].masked_fill(~source.mask[:, 1:], IGNORE)  # (B, S - 1)
        scored = token_log_probs(reading.vectors[:, :-1], self.embedding.weight, None, following)
        means = -scored.sum(1) / source.mask[:, 1:].sum(1).clamp(min=1)  # (B,)
        return self.body(self.pooling(reading, source)), means.sum()

    def forward(self, batch: Batch) -> Tensor:
        """Logits aligned with batch.target: (B, C) for texts, (B, W, C) for words, (B, S, V) for tokens."""
        return self.head(self.hidden(batch)[0])


def body(width: int, layers: tuple[int, ...], dropout: float = 0.0) -> tuple[nn.Sequential, int]:
    """Fully connected layers with ReLU between pooling and head, perhaps none, and the width they end with."""
    parts: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
    for size in layers:
        parts += [nn.Linear(width, size), nn.ReLU()] + ([nn.Dropout(dropout)] if dropout else [])
        width = size
    return nn.Sequential(*parts), width


HEADS: dict[str, type[nn.Module]] = {
    "class": ClassHead,
    "multilabel": MultiLabelHead,
    "regression": RegressionHead,
    "tags": ClassHead,
    "tokens": TokenHead,
    "pixels": RegressionHead,
}


def head_of(answers: OutputSpec, width: int) -> nn.Module:
    """The head that gives such answers from vectors of this width."""
    return HEADS[answers.kind](width, answers.count)
