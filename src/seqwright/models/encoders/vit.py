"""The vision Transformer: a picture's patches read as words are (Dosovitskiy et al. 2021), and networks that recur."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.pooling import POOLINGS, Everything, Pooling, Words
from seqwright.models.encoder_model import EncoderModel, Features, body, head_of
from seqwright.models.encoders.bidirectional import BidirectionalConfig, BidirectionalEncoder
from seqwright.models.encoders.recurrent import GRUConfig, LSTMConfig, RecurrentConfig
from seqwright.models.transformer import TransformerEncoder, TransformerEncoderConfig, initialize


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerEncoderConfig):
    layers: int = 4
    """Blocks of the encoder."""
    activation: Literal["gelu", "gelu-tanh", "relu", "swiglu"] = "gelu"
    """The nonlinearity of the feed-forward networks; gelu-tanh is GPT-2's approximation, swiglu has a gate."""
    positions: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """How a patch knows where it stands, counted row by row."""
    pooling: Literal["first", "mean", "max", "attention"] = "first"
    """What stands for a picture: a class token in front of the patches (first), or something of all patches."""


@dataclass(frozen=True, kw_only=True)
class ImageRecurrentConfig(BidirectionalConfig):
    pooling: Literal["last", "max", "mean", "attention"] = "last"
    """What stands for a picture: where each direction ended, or something of all patches."""


@dataclass(frozen=True, kw_only=True)
class ImageLSTMConfig(ImageRecurrentConfig):
    cell: ClassVar[type[RecurrentConfig]] = LSTMConfig


@dataclass(frozen=True, kw_only=True)
class ImageGRUConfig(ImageRecurrentConfig):
    cell: ClassVar[type[RecurrentConfig]] = GRUConfig


class Patches(Features):
    """Linear maps of patches; those that are hidden are one learned vector (Xie et al. 2022)."""

    def __init__(self, numbers: int, width: int):
        super().__init__(numbers, width)
        self.hidden = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        x = super().forward(source)  # (B, S, D)
        assert source.segments is not None
        return torch.where((source.segments == 1).unsqueeze(-1), self.hidden, x)


class ClassToken(TransformerEncoder):
    """A Transformer encoder with a learned vector in front, which collects what stands for the whole."""

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        self.token = nn.Parameter(torch.zeros(config.width))

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        token = self.token.to(x.dtype).expand(len(x), 1, -1)
        return super().forward(torch.cat([token, x], 1), F.pad(mask, (1, 0), value=True))


def vit(config: ViTConfig, sizes: EncoderSizes) -> EncoderModel:
    """A vision Transformer with fresh weights."""
    assert sizes.length is not None
    first = config.pooling == "first" and sizes.answers.kind != "tags"  # where patches are painted in, too: weights fit
    if sizes.length + first > config.context:
        raise UserError(f"a picture has {sizes.length} patches; set model.context to {sizes.length + first} or more.")
    exact = replace(config, context=sizes.length + first)  # a learned table has no more places than are taken
    encoder = ClassToken(exact) if first else TransformerEncoder(exact)
    initialize(encoder, config.width)
    return seeing(config.pooling, sizes, encoder, config.width)


def recurrent(config: ImageRecurrentConfig, sizes: EncoderSizes) -> EncoderModel:
    """A picture read patch by patch."""
    return seeing(config.pooling, sizes, BidirectionalEncoder(config), config.embedding or config.width)


def seeing(pooled: str, sizes: EncoderSizes, encoder: nn.Module, embedding: int) -> EncoderModel:
    """Patches to an encoder to what is asked: one vector of a picture, one of each frame, or every patch's."""
    assert sizes.features is not None
    width: int = encoder.width  # type: ignore[assignment]
    pooling: Pooling
    if sizes.answers.kind == "pixels":
        pooling = Everything(width)
    else:
        pooling = Words(width) if sizes.answers.kind == "tags" else POOLINGS[pooled](width)
    patches = (Patches if sizes.segments > 1 else Features)(sizes.features, embedding)
    layers, _ = body(width, ())
    return EncoderModel(patches, encoder, pooling, layers, head_of(sizes.answers, width))
