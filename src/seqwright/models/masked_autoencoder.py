"""Masked autoencoder (MAE, He et al. 2022): an encoder of visible patches, and a light decoder of all positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.core.batch import Source
from seqwright.layers.encoder import EncoderOutput
from seqwright.layers.pooling import Pooling
from seqwright.models.encoder_model import EncoderModel
from seqwright.models.encoders.transformer import TransformerEncoder, initialize
from seqwright.models.encoders.vit import ViTConfig


class MaskedAutoencoder(EncoderModel):
    """Encoder model whose encoder reads the visible patches only.

    Their number is the size of `source.visible`, the same in every row: one shape, and no synchronization with a GPU.
    """

    def encoded(self, source: Source) -> EncoderOutput:
        """Hidden states of the class token, where there is one, and of the visible patches."""
        assert source.visible is not None
        x = self.embedding(source)  # (B, S, D)
        visible = x.gather(1, source.visible.unsqueeze(-1).expand(-1, -1, x.size(-1)))  # (B, K, D)
        vectors = self.encoder.encode_visible(visible, source.visible)
        return EncoderOutput(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device))


class MaskedDecoder(Pooling):
    """Transformer over all positions: projected hidden states of visible patches, a learned mask token at the others.

    It stands where a classifier pools, so that its weights are dropped when one is fine-tuned from the encoder.
    """

    def __init__(self, width: int, config: ViTConfig):
        super().__init__(config.width)
        self.projection = nn.Linear(width, config.width)
        self.mask_token = nn.Parameter(torch.randn(config.width) * 0.02)
        self.decoder = TransformerEncoder(config)
        initialize(self.decoder, config.width)

    def forward(self, encoded: EncoderOutput, source: Source) -> Tensor:
        """Hidden states (B, S, D) of all patches."""
        assert source.visible is not None
        x = self.projection(encoded.vectors)  # (B, 1 + K or K, D)
        rows, length = source.mask.shape
        class_token, patches = x.tensor_split([x.size(1) - source.visible.size(1)], 1)
        index = source.visible.unsqueeze(-1).expand(-1, -1, self.width)
        places = self.mask_token.to(x.dtype).expand(rows, length, -1).scatter(1, index, patches)  # (B, S, D)
        vectors, _ = self.decoder.run(torch.cat([class_token, places], 1))
        return vectors[:, -length:]
