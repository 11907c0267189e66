"""Vision Transformer: Transformer encoder over the patches of an image, with a class token (ViT, Dosovitskiy et al.
2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.layers.encoder import EncoderOutput
from seqwright.models.encoders.transformer import TransformerEncoder, TransformerEncoderConfig, initialize


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerEncoderConfig):
    layers: int = 4
    """Number of Transformer blocks."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2", "swiglu"] = "gelu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu is gated."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """Positional encoding of the patches, numbered row by row."""

    poolings: ClassVar[tuple[str, ...]] = ("first", "mean", "max", "attention")

    def for_images(self, length: int, *, class_token: bool) -> ViTConfig:
        positions = length + class_token
        if positions > self.context:
            raise UserError(f"an image has {length} patches; set model.context to {positions} or more.")
        fitted = replace(self, context=positions)  # no unused rows in a learned position table
        return ClassTokenConfig(**vars(fitted)) if class_token else fitted


class ClassTokenConfig(ViTConfig):
    """A ViT with a class token, which the pooling of its head decides."""


class ClassTokenEncoder(TransformerEncoder):
    """Transformer encoder with a learned class token prepended, pooled to represent the image."""

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        self.token = nn.Parameter(torch.zeros(config.width))

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        token = self.token.to(x.dtype).expand(len(x), 1, -1)
        return super().forward(torch.cat([token, x], 1), F.pad(mask, (1, 0), value=True))


def vit_encoder(config: ViTConfig) -> TransformerEncoder:
    """A newly initialized vision Transformer."""
    encoder = (ClassTokenEncoder if isinstance(config, ClassTokenConfig) else TransformerEncoder)(config)
    initialize(encoder, config.width)
    return encoder
