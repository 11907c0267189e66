"""Image model: patch embedding, any encoder, and an output for each image, frame or patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqwright.core.batch import EncoderSizes, Source
from seqwright.core.config import UserError
from seqwright.layers.encoder import EncoderConfig
from seqwright.layers.heads import HeadConfig
from seqwright.layers.pooling import FirstSubword, NoPooling, Pooling
from seqwright.models.encoder_model import (
    EncoderModel,
    Features,
    body,
    check_pooling,
    make_head,
    make_pooling,
    pooling_names,
)
from seqwright.models.encoders.vit import ViTConfig
from seqwright.models.masked_autoencoder import MaskedAutoencoder, MaskedDecoder


@dataclass(frozen=True, kw_only=True)
class ImageHeadConfig(HeadConfig):
    """Options of an image classification head."""

    name: ClassVar[str] = "images"

    pooling: str | tuple[str, ...] = "mean"
    """Pooling to one vector per image, or several, concatenated: mean, max or attention over the patches; first (a
    class token that a ViT prepends); of recurrent encoders last (final states of all directions)."""

    def check(self, encoder: EncoderConfig) -> None:
        """Refuses options that do not fit the encoder's."""
        check_pooling(self.pooling, encoder)


class Patches(Features):
    """Patch embedding; masked patches are replaced by a learned mask token (SimMIM, Xie et al. 2022)."""

    def __init__(self, numbers: int, width: int):
        super().__init__(numbers, width)
        self.hidden = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, source: Source) -> Tensor:  # type: ignore[override]
        x = super().forward(source)  # (B, S, D)
        assert source.segments is not None
        return torch.where((source.segments == 1).unsqueeze(-1), self.hidden, x)


def image_model(
    config: EncoderConfig,
    head: ImageHeadConfig,
    make_encoder: Callable[[EncoderConfig], nn.Module],
    sizes: EncoderSizes,
) -> EncoderModel:
    """A newly initialized image model."""
    assert sizes.length is not None
    assert sizes.features is not None
    output = sizes.answers
    if output.kind in ("pixels", "tags") and not config.aligned:
        raise UserError("an output for each patch needs a hidden state for each: set stride = 1 and leave length out.")
    if sizes.causal and not config.causal:
        raise UserError(
            "next frames are predicted from past ones: set model.kind to gpt, or model.bidirectional = false of rnn,"
            " lstm or gru."
        )
    # Inpainting does not read the class token, but has it too: pretrained weights then fit a classifier.
    class_token = "first" in pooling_names(head.pooling) and output.kind != "tags"
    fitted = config.for_images(sizes.length, class_token=class_token)
    encoder = make_encoder(fitted)
    if encoder.context is not None and encoder.context < sizes.length:  # type: ignore[operator]
        raise UserError(f"an image has {sizes.length} patches; set model.context to {sizes.length} or more.")
    width = config.output_width
    pooling: Pooling
    if isinstance(fitted, ViTConfig) and fitted.decoder_layers:
        if sizes.segments == 1:
            raise UserError('decoder_layers predicts masked patches: set data.objective = "inpaint", or leave it out.')
        decoder = MaskedDecoder(width, fitted.decoder())
        patches = Features(sizes.features, width)
        return MaskedAutoencoder(patches, encoder, decoder, nn.Identity(), make_head(output, decoder.width))
    if output.kind == "pixels":
        pooling = NoPooling(width)
    elif output.kind == "tags":
        pooling = FirstSubword(width)
    else:
        pooling = make_pooling(head.pooling, config, width)
    patches = (Patches if sizes.segments > 1 else Features)(sizes.features, config.input_width)
    layers, _ = body(width, ())
    return EncoderModel(patches, encoder, pooling, layers, make_head(output, pooling.width), causal=config.causal)
