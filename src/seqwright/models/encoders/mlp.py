"""The encoder of a multilayer perceptron: none, so that a head reads all token embeddings as one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from seqwright.core.config import check_sizes
from seqwright.layers.encoder import EncoderConfig, EncoderOutput


@dataclass(frozen=True, kw_only=True)
class MLPConfig(EncoderConfig):
    embedding: int = 128
    """Embedding size."""
    length: int = 128
    """Fixed length in tokens: embeddings are truncated or zero-padded to it and flattened."""

    head_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"labeled": {"hidden": (256,)}}
    head_fixed: ClassVar[Mapping[str, Mapping[str, Any]]] = {"labeled": {"pooling": "flatten"}}

    def __post_init__(self) -> None:
        check_sizes(self, "embedding", "length")

    @property
    def input_width(self) -> int:
        return self.embedding

    @property
    def output_length(self) -> int:
        return self.length


class IdentityEncoder(nn.Module):
    """Embeddings, unchanged."""

    def __init__(self, width: int, length: int):
        super().__init__()
        self.width, self.context = width, length

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        return EncoderOutput(x, mask)


def mlp_encoder(config: MLPConfig) -> IdentityEncoder:
    """The identity, for texts of a fixed length."""
    return IdentityEncoder(config.embedding, config.length)
