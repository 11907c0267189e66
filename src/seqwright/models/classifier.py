"""Text classifier: token embedding, any encoder, pooling, fully connected layers and a head.

The lectures' five classifiers of film reviews are combinations of these; their parameter counts are tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from seqwright.core.batch import EncoderSizes
from seqwright.core.config import UserError, check_shares
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.heads import HeadConfig
from seqwright.models.encoder_model import EncoderModel, Tokens, body, check_pooling, make_head, make_pooling


@dataclass(frozen=True, kw_only=True)
class ClassifierHeadConfig(HeadConfig):
    """Options of a classification head."""

    name: ClassVar[str] = "labeled"

    hidden: tuple[int, ...] = ()
    """Widths of fully connected layers between pooling and output layer."""
    head_dropout: float = 0.0
    """Dropout rate of the pooled vector and of each fully connected layer."""
    pooling: str | tuple[str, ...] = "mean"
    """Pooling to one vector per text, or several, concatenated: mean, max, attention; first (<sos> as class token) or
    final (last token); of recurrent encoders last (final states of all directions) or backward (of the backward one);
    flatten (all positions, with length)."""

    def __post_init__(self) -> None:
        check_shares(self, "head_dropout")
        if any(size < 1 for size in self.hidden):
            raise UserError(f"hidden lists the widths of layers, at least 1 each, not {list(self.hidden)}.")

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses options that do not fit the encoder's."""
        check_pooling(self.pooling, encoder)


def classifier(
    config: EncoderConfig,
    head: ClassifierHeadConfig,
    make_encoder: Callable[[EncoderConfig], nn.Module],
    sizes: EncoderSizes,
) -> EncoderModel:
    """A newly initialized classifier."""
    assert sizes.vocabulary is not None
    encoder = make_encoder(config)
    pooling = make_pooling(head.pooling, config, config.output_width)
    layers, width = body(pooling.width, head.hidden, head.head_dropout)
    tokens = Tokens(sizes.vocabulary.size, config.input_width, segments=sizes.segments)
    tokens.initialize()
    model = EncoderModel(tokens, encoder, pooling, layers, make_head(sizes.answers, width), causal=config.causal)
    config.initialize(tokens)
    return model
