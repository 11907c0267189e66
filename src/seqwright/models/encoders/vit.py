"""Vision Transformer: Transformer encoder over the patches of an image, with a class token (ViT, Dosovitskiy et al.
2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError, check_not_negative, check_sizes
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
    decoder_layers: int = 0
    """Masked autoencoder (MAE, He et al. 2022): the encoder reads the visible patches only, and a decoder of so many
    blocks predicts the masked ones; 0: the encoder reads all patches, masked ones as a mask token (SimMIM)."""
    decoder_width: int | None = None
    """Width of that decoder; by default that of the encoder. It has as many heads, and the same ratio of feed-forward
    to model width."""

    poolings: ClassVar[tuple[str, ...]] = ("first", "mean", "max", "attention")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative(self, "decoder_layers")
        check_sizes(self, "decoder_width")
        if self.decoder_width is not None and not self.decoder_layers:
            raise UserError("decoder_width is that of a masked autoencoder: set decoder_layers, too.")
        if self.decoder_layers and self.attention_window is not None:
            raise UserError("a masked autoencoder attends to all visible patches; leave attention_window out.")
        if self.decoder_layers:
            self.decoder()  # refuses a width that the heads do not divide

    def decoder(self) -> ViTConfig:
        """The options of a masked autoencoder's decoder."""
        width = self.decoder_width or self.width
        ffn_width = None if self.ffn_width is None else max(1, round(self.ffn_width * width / self.width))
        sizes = {"layers": self.decoder_layers, "width": width, "ffn_width": ffn_width}
        return replace(self, **sizes, decoder_layers=0, decoder_width=None)  # type: ignore[arg-type]

    def for_images(self, length: int, *, class_token: bool) -> ViTConfig:
        positions = length + class_token
        if positions > self.context:
            raise UserError(f"an image has {length} patches; set model.context to {positions} or more.")
        fitted = replace(self, context=positions)  # no unused rows in a learned position table
        return ClassTokenConfig(**vars(fitted)) if class_token else fitted


class ClassTokenConfig(ViTConfig):
    """A ViT with a class token, which the pooling of its head decides."""


class PatchEncoder(TransformerEncoder):
    """Transformer encoder of the patches of an image, or of some of them."""

    def encode_visible(self, x: Tensor, positions: Tensor) -> Tensor:
        """Hidden states of the patches x (B, K, D) at positions (B, K), which attend to each other only."""
        return self.run_blocks(x, positions)


class ClassTokenEncoder(PatchEncoder):
    """Patch encoder with a learned class token prepended, pooled to represent the image."""

    def __init__(self, config: ViTConfig):
        super().__init__(config)
        self.token = nn.Parameter(torch.zeros(config.width))

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        return super().forward(self._with_token(x), F.pad(mask, (1, 0), value=True))

    def encode_visible(self, x: Tensor, positions: Tensor) -> Tensor:
        """Hidden states (B, 1 + K, D) of the class token, at position 0, and of these patches."""
        return super().encode_visible(self._with_token(x), F.pad(positions + 1, (1, 0)))

    def _with_token(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.to(x.dtype).expand(len(x), 1, -1), x], 1)


def vit_encoder(config: ViTConfig) -> PatchEncoder:
    """A newly initialized vision Transformer."""
    encoder = (ClassTokenEncoder if isinstance(config, ClassTokenConfig) else PatchEncoder)(config)
    initialize(encoder, config.width)
    return encoder
