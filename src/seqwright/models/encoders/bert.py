"""BERT: bidirectional Transformer encoder for masked language modeling (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from seqwright.core.batch import EncoderSizes
from seqwright.layers.heads import MLMHead
from seqwright.layers.pooling import NoPooling
from seqwright.models.encoder_model import EncoderModel, Tokens
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig


@dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerEncoderConfig):
    layers: int = 4
    """Number of Transformer blocks."""
    context: int = 128
    """Context length: maximum input length in tokens."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "learned"
    """Positional encoding: added to embeddings (learned, sinusoidal), rotary (rope), or a bias of attention scores by
    distance (alibi: linear; t5: learned by bucket)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu is gated."""
    norm_position: Literal["pre", "post"] = "post"
    """Normalize the input of each sublayer (pre), or the residual sums and the embedding (post, as in the paper)."""
    norm_eps: float = 1e-12
    """Epsilon of the normalizations, added to the variance."""
    dropout: float = 0.1
    """Dropout rate of embeddings, sublayer outputs and attention weights."""


def bert(config: BertConfig, sizes: EncoderSizes) -> EncoderModel:
    """A newly initialized BERT with a masked language modeling head tied to the embedding."""
    assert sizes.vocabulary is not None
    embedding = Tokens(sizes.vocabulary.size, config.width, segments=sizes.segments)
    head = MLMHead(config.width, sizes.answers.count, epsilon=config.norm_eps)
    for part in (embedding, head):
        initialize(part)
    head.readout.weight = embedding.weight
    return EncoderModel(embedding, bert_encoder(config), NoPooling(config.width), nn.Identity(), head)


def bert_encoder(config: BertConfig) -> TransformerEncoder:
    """A newly initialized BERT encoder, without embedding and head."""
    encoder = TransformerEncoder(config, embedding_norm=config.norm_position == "post")
    initialize(encoder)
    return encoder


def initialize(module: nn.Module) -> None:
    """The paper's initialization: normal with standard deviation 0.02, biases 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
