"""Text CNN: parallel 1-D convolutions of several kernel widths, in one or more layers (Collobert 2011, Kim 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.cross_attention import pad
from seqwright.layers.encoder import EncoderConfig, EncoderOutput


@dataclass(frozen=True, kw_only=True)
class CNNConfig(EncoderConfig):
    embedding: int = 128
    """Embedding size."""
    channels: tuple[int, ...] = (128,)
    """Filters (output channels) of each layer, for each kernel width."""
    kernels: tuple[int, ...] = (3, 4, 5)
    """Kernel widths in tokens, computed in parallel (Kim 2014)."""
    stride: int = 1
    """Stride of the convolutions."""
    pool_size: int = 1
    """Max pooling after each convolution: over windows of this many positions, side by side (MaxPool1d); 1 is none."""
    length: int | None = None
    """Fixed length in tokens to which texts are padded, with valid convolutions; by default any length, with same
    padding."""
    dropout: float = 0.0
    """Dropout rate of the embeddings."""

    poolings: ClassVar[tuple[str, ...]] = ("max", "mean", "attention", "flatten")

    def __post_init__(self) -> None:
        check_sizes(self, "embedding", "stride", "pool_size", "length")
        check_shares(self, "dropout")
        if not self.channels or not self.kernels or min(*self.channels, *self.kernels, 1) < 1:
            raise UserError("channels and kernels must be non-empty lists of sizes of at least 1.")
        if self.length is not None and len(self.kernels) > 1:
            raise UserError("kernels of different widths leave different lengths of a fixed length; give one kernel.")
        if self.output_length is not None and self.output_length < 1:
            raise UserError(f"no window of {self.kernels[0]} fits length {self.length} in every layer; raise length.")

    @property
    def input_width(self) -> int:
        return self.embedding

    @property
    def output_width(self) -> int:
        return len(self.kernels) * self.channels[-1]

    @property
    def aligned(self) -> bool:
        return self.length is None and self.stride == self.pool_size == 1

    @property
    def output_length(self) -> int | None:
        """Positions that remain of a fixed length after all layers."""
        remaining = self.length
        if remaining is not None:
            for _ in self.channels:
                remaining = ((remaining - self.kernels[0]) // self.stride + 1) // self.pool_size
        return remaining


class CNNEncoder(nn.Module):
    """One stack (tower) of convolutions with ReLU per kernel width, concatenated; padding is zero in every layer."""

    def __init__(self, config: CNNConfig):
        super().__init__()
        self.stride, self.kernels, self.pool_size = config.stride, config.kernels, config.pool_size
        self.context = config.length
        self.width = config.output_width
        sizes = (config.embedding, *config.channels)
        self.towers = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(a, b, kernel, config.stride) for a, b in pairwise(sizes))
            for kernel in config.kernels
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        x = self.dropout(x) * mask.unsqueeze(-1)
        if self.context is not None:  # valid convolutions: shapes are the same for all texts, and padding counts
            x = pad(x, self.context)
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        outputs = [self._convolve(tower, x.transpose(1, 2), mask) for tower in self.towers]
        return EncoderOutput(torch.cat([vectors for vectors, _ in outputs], -1), outputs[0][1])

    def _convolve(self, tower: nn.Module, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S / (stride · pool_size) ** layers, channels) of one kernel width, and their mask."""
        for layer in tower:  # type: ignore[attr-defined]
            if self.context is None:  # same padding: windows are centered on every stride-th position
                before = (layer.kernel_size[0] - 1) // 2
                x = F.pad(x, (before, layer.kernel_size[0] - 1 - before))
                mask = mask[:, :: self.stride]
                x = torch.relu(layer(x)) * mask.unsqueeze(1)
            else:
                x = torch.relu(layer(x))
                mask = mask[:, : x.size(2)]
            if self.pool_size > 1:  # padding is zero, and no output of ReLU is less
                x = F.max_pool1d(x, self.pool_size, ceil_mode=self.context is None)
                mask = mask[:, :: self.pool_size][:, : x.size(2)]
        return x.transpose(1, 2), mask
