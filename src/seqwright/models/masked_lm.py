"""Masked language model: BERT's objective (Devlin et al. 2019) for any encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from seqwright.core.batch import EncoderSizes
from seqwright.core.config import UserError
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.heads import HeadConfig, MLMHead
from seqwright.layers.pooling import NoPooling
from seqwright.models.encoder_model import EncoderModel, Tokens


@dataclass(frozen=True, kw_only=True)
class MLMHeadConfig(HeadConfig):
    """A masked language modeling head has no options: it is tied to the token embedding."""

    name: ClassVar[str] = "masked"

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses encoders whose output is not aligned with their input."""
        if not encoder.aligned:
            raise UserError("masked tokens need a hidden state each: set stride = 1 and leave length out.")


def masked_lm(
    config: EncoderConfig,
    head: MLMHeadConfig,
    make_encoder: Callable[[EncoderConfig], nn.Module],
    sizes: EncoderSizes,
) -> EncoderModel:
    """A newly initialized masked language model."""
    assert sizes.vocabulary is not None
    tokens = Tokens(sizes.vocabulary.size, config.input_width, segments=sizes.segments)
    if config.token_std is None:
        tokens.initialize()
    output = MLMHead(
        config.output_width, sizes.answers.count, embedding=config.input_width, epsilon=config.head_norm_eps
    )
    for part in (tokens, output):
        config.initialize(part)
    output.readout.weight = tokens.weight
    encoder = make_encoder(config)
    return EncoderModel(tokens, encoder, NoPooling(config.output_width), nn.Identity(), output, causal=config.causal)
