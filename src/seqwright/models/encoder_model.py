"""Encoder model: embedding, any encoder, pooling, head. Classifiers, taggers, BERT and ViT are combinations of these.

Embedding and encoder have the names that they have in a language model, so that one is initialized from the other.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, OutputSpec, Source
from seqwright.core.config import UserError, did_you_mean
from seqwright.core.protocols import Head
from seqwright.core.state import State
from seqwright.layers.cross_entropy import token_log_probs
from seqwright.layers.encoder import CausalEncoder, EncoderConfig, EncoderOutput
from seqwright.layers.heads import ClassHead, MultiLabelHead, RegressionHead, TokenHead
from seqwright.layers.pooling import POOLINGS, ConcatPooling, Flatten, Pooling

TOKEN_STD = 0.1
"""Standard deviation of new token embeddings, small enough that a few epochs move them anywhere: PyTorch's 1.0 costs 7
points of accuracy on SST-2."""


class Tokens(nn.Embedding):
    """Token embedding and, for texts in parts, segment embedding (Devlin et al. 2019)."""

    def __init__(self, vocabulary: int, width: int, *, segments: int = 1):
        super().__init__(vocabulary, width)
        self.segments = nn.Embedding(segments, width) if segments > 1 else None

    def initialize(self) -> None:
        """Normal with standard deviation TOKEN_STD."""
        for table in self.modules():
            nn.init.normal_(table.weight, std=TOKEN_STD)  # type: ignore[arg-type]

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.ids is not None
        x = super().forward(source.ids)  # (B, S, D)
        return x if self.segments is None or source.segments is None else x + self.segments(source.segments)


class Features(nn.Linear):
    """Linear embedding of real-valued features: patches of an image, frames of a recording."""

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        assert source.features is not None
        return super().forward(source.features.to(self.weight.dtype))  # (B, S, D)


class EncoderModel(nn.Module):
    """Embed → encode → pool → body → head; `causal`: no hidden state depends on what follows it."""

    def __init__(
        self,
        embedding: nn.Module,
        encoder: nn.Module,
        pooling: Pooling,
        body: nn.Module,
        head: nn.Module,
        *,
        causal: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.encoder: Any = encoder
        self.stateful = isinstance(encoder, CausalEncoder)
        self.pooling = pooling
        self.body = body
        self.head: Head = head  # type: ignore[assignment]
        self.causal = causal

    @property
    def context(self) -> int | None:
        """Context length of the encoder; None where unlimited."""
        return self.encoder.context

    def encoded(self, source: Source) -> EncoderOutput:
        """Hidden states of all positions."""
        x = self.embedding(source)
        if self.stateful:  # no mask is needed: a causal encoder never sees right padding
            return EncoderOutput(self.encoder(x)[0], source.mask)
        return self.encoder(x, source.mask)

    def encode(self, source: Source) -> Tensor:
        """Hidden states (B, S, D) of a source."""
        return self.encoded(source).vectors

    def pooled(self, source: Source) -> Tensor:
        """Pooled hidden states, before the body: (B, D) for texts, (B, W, D) for words."""
        return self.pooling(self.encoded(source), source)

    def hidden(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """The input of the head, aligned with batch.target; no state is carried."""
        return self.body(self.pooled(batch.source)), None

    @property
    def models_source(self) -> bool:
        """Whether the encoder is causal and as wide as the token embedding, which then is the output layer."""
        wide = isinstance(self.embedding, Tokens) and self.embedding.embedding_dim == self.encoder.width
        return self.causal and wide

    def hidden_and_lm_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The input of the head, and the mean nll of each row's tokens, with the embedding as output layer, summed."""
        source = batch.source
        assert source.ids is not None
        assert isinstance(self.embedding, Tokens)
        encoded = self.encoded(source)
        following = source.ids[:, 1:].masked_fill(~source.mask[:, 1:], IGNORE)  # (B, S - 1)
        log_probs = token_log_probs(encoded.vectors[:, :-1], self.embedding.weight, None, following)
        means = -log_probs.sum(1) / source.mask[:, 1:].sum(1).clamp(min=1)  # (B,)
        return self.body(self.pooling(encoded, source)), means.sum()

    def forward(self, batch: Batch) -> Tensor:
        """Logits aligned with batch.target: (B, C) for texts, (B, W, C) for words, (B, S, V) for tokens."""
        return self.head(self.hidden(batch)[0])


def body(width: int, layers: tuple[int, ...], dropout: float = 0.0) -> tuple[nn.Sequential, int]:
    """Fully connected layers with ReLU between pooling and head, possibly none, and their output width."""
    parts: list[nn.Module] = [nn.Dropout(dropout)] if dropout else []
    for size in layers:
        parts += [nn.Linear(width, size), nn.ReLU()] + ([nn.Dropout(dropout)] if dropout else [])
        width = size
    return nn.Sequential(*parts), width


def pooling_names(pooling: str | tuple[str, ...]) -> tuple[str, ...]:
    """The poolings of a configuration, of which one may be written without a list."""
    return (pooling,) if isinstance(pooling, str) else pooling


def check_pooling(pooling: str | tuple[str, ...], encoder: EncoderConfig) -> None:
    """Refuses poolings that are not defined for an encoder."""
    names = pooling_names(pooling)
    if undefined := [name for name in names if name not in encoder.poolings and pooling != "flatten"]:
        raise UserError(
            f"pooling {undefined[0]!r} is not defined for this encoder.{did_you_mean('', encoder.poolings)}"
        )
    if "flatten" in names and len(names) > 1:
        raise UserError('pooling = "flatten" keeps all positions and stands alone, not in a list.')
    if ("flatten" in names) != (encoder.output_length is not None):
        raise UserError('pooling = "flatten" and length go together; give both or neither.')
    encoder.check_pooling(names)


def make_pooling(pooling: str | tuple[str, ...], config: EncoderConfig, width: int) -> Pooling:
    """A newly initialized pooling of hidden states, or several, concatenated."""
    if pooling == "flatten":
        assert config.output_length is not None
        return Flatten(width, config.output_length)
    parts = [POOLINGS[name](width) for name in pooling_names(pooling)]
    return parts[0] if len(parts) == 1 else ConcatPooling(*parts)


HEADS: dict[str, type[nn.Module]] = {
    "class": ClassHead,
    "multilabel": MultiLabelHead,
    "regression": RegressionHead,
    "tags": ClassHead,
    "tokens": TokenHead,
    "pixels": RegressionHead,
}


def make_head(output: OutputSpec, width: int) -> nn.Module:
    """A newly initialized head for outputs of a kind."""
    return HEADS[output.kind](width, output.count)
