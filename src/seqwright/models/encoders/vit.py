"""Vision Transformer (ViT, Dosovitskiy et al. 2021) and recurrent encoders over the patches of an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.pooling import POOLINGS, FirstSubword, NoPooling, Pooling
from seqwright.models.encoder_model import EncoderModel, Features, body, head_of
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.recurrent import GRUConfig, LSTMConfig, RecurrentConfig
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig, initialize


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerEncoderConfig):
    layers: int = 4
    """Number of Transformer blocks."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """Activation of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu is gated."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """Positional encoding of the patches, numbered row by row."""
    pooling: Literal["first", "mean", "max", "attention"] = "first"
    """Pooling to one vector per image: a prepended class token (first), or over all patches."""


@dataclass(frozen=True, kw_only=True)
class ImageRecurrentConfig(BidirectionalConfig):
    pooling: Literal["last", "max", "mean", "attention"] = "last"
    """Pooling to one vector per image: the final state of each direction (last), or over all patches."""


@dataclass(frozen=True, kw_only=True)
class ImageLSTMConfig(ImageRecurrentConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class ImageGRUConfig(ImageRecurrentConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


class Patches(Features):
    """Patch embedding; masked patches are replaced by a learned mask token (SimMIM, Xie et al. 2022)."""

    def __init__(self, numbers: int, width: int):
        super().__init__(numbers, width)
        self.hidden = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        x = super().forward(source)  # (B, S, D)
        assert source.segments is not None
        return torch.where((source.segments == 1).unsqueeze(-1), self.hidden, x)


class ClassToken(TransformerEncoder):
    """Transformer encoder with a learned class token prepended, pooled to represent the image."""

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        self.token = nn.Parameter(torch.zeros(config.width))

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        token = self.token.to(x.dtype).expand(len(x), 1, -1)
        return super().forward(torch.cat([token, x], 1), F.pad(mask, (1, 0), value=True))


def vit(config: ViTConfig, sizes: EncoderSizes) -> EncoderModel:
    """A newly initialized vision Transformer."""
    assert sizes.length is not None
    # Inpainting does not read the class token, but has it too: pretrained weights then fit a classifier.
    first = config.pooling == "first" and sizes.answers.kind != "tags"
    if sizes.length + first > config.context:
        raise UserError(f"an image has {sizes.length} patches; set model.context to {sizes.length + first} or more.")
    fitted = replace(config, context=sizes.length + first)  # no unused rows in a learned position table
    encoder = ClassToken(fitted) if first else TransformerEncoder(fitted)
    initialize(encoder, config.width)
    return image_model(config.pooling, sizes, encoder, config.width)


def image_recurrent(config: ImageRecurrentConfig, sizes: EncoderSizes) -> EncoderModel:
    """A newly initialized recurrent encoder over the patches of an image."""
    return image_model(config.pooling, sizes, BidirectionalEncoder(config), config.embedding or config.width)


def image_model(pooled: str, sizes: EncoderSizes, encoder: nn.Module, embedding: int) -> EncoderModel:
    """Patch embedding, encoder, pooling and head: one output per image, per frame, or per patch."""
    assert sizes.features is not None
    width: int = encoder.width  # type: ignore[assignment]
    pooling: Pooling
    if sizes.answers.kind == "pixels":
        pooling = NoPooling(width)
    else:
        pooling = FirstSubword(width) if sizes.answers.kind == "tags" else POOLINGS[pooled](width)
    patches = (Patches if sizes.segments > 1 else Features)(sizes.features, embedding)
    layers, _ = body(width, ())
    return EncoderModel(patches, encoder, pooling, layers, head_of(sizes.answers, width))
