"""BERT: a Transformer that reads both ways and guesses hidden tokens (Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from seqwright.core.batch import EncoderSizes
from seqwright.layers.heads import MaskedHead
from seqwright.layers.pooling import Everything
from seqwright.models.encoder_model import EncoderModel, Tokens
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig


@dataclass(frozen=True, kw_only=True)
class BertConfig(TransformerEncoderConfig):
    layers: int = 4
    """Blocks."""
    context: int = 128
    """The longest input, in tokens."""
    positions: Literal["learned", "sinusoidal", "rope", "alibi", "t5", "none"] = "learned"
    """How a token knows where it stands: vectors added to the tokens (learned, sinusoidal), turned queries and keys
    (rotary), or numbers added to the scores by distance (alibi: straight lines; relative: T5's learned buckets)."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu has a gate."""
    norm_position: Literal["pre", "post"] = "post"
    """Normalize what each part reads (pre) or the sum it makes, the embedding's too (post, as in the paper)."""
    norm_eps: float = 1e-12
    """What normalizations add to a variance before they divide by its root."""
    dropout: float = 0.1
    """Share of activations dropped in training: of the embedding, of each branch's output, of attention weights."""


def bert(config: BertConfig, sizes: EncoderSizes) -> EncoderModel:
    """A BERT that guesses hidden tokens, with fresh weights; its read-out is the embedding transposed."""
    assert sizes.vocabulary is not None
    embedding = Tokens(sizes.vocabulary.size, config.width, segments=sizes.segments)
    head = MaskedHead(config.width, sizes.answers.count, epsilon=config.norm_eps)
    for part in (embedding, head):
        initialize(part)
    head.readout.weight = embedding.weight
    return EncoderModel(embedding, bert_encoder(config), Everything(config.width), nn.Identity(), head)


def bert_encoder(config: BertConfig) -> TransformerEncoder:
    """The encoder, whatever follows it."""
    encoder = TransformerEncoder(config, embedding_norm=config.norm_position == "post")
    initialize(encoder)
    return encoder


def initialize(module: nn.Module) -> None:
    """The paper's start: normal with deviation 0.02, biases 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
