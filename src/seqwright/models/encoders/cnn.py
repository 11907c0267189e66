"""Convolutions over a text: windows of several widths side by side, in one layer or more (Collobert 2011, Kim 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError, check_shares, check_sizes
from seqwright.layers.cross_attention import pad
from seqwright.layers.encoder import EncoderOutput


@dataclass(frozen=True, kw_only=True)
class CNNConfig:
    embedding: int = 128
    """Size of the token vectors."""
    channels: tuple[int, ...] = (128,)
    """Filters of each layer, for each kernel width."""
    kernels: tuple[int, ...] = (3, 4, 5)
    """Tokens that a filter sees; several widths are computed side by side (Kim 2014)."""
    stride: int = 1
    """Positions from one window of a layer to the next."""
    length: int | None = None
    """Texts are padded to this many tokens, and windows stay inside; without it they may begin before a text."""
    dropout: float = 0.0
    """Share dropped of the token vectors."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding", "stride", "length")
        check_shares(self, "dropout")
        if not self.channels or not self.kernels or min(*self.channels, *self.kernels, 1) < 1:
            raise UserError("channels and kernels are lists of sizes of at least 1, one or more of each.")
        if self.length is not None and len(self.kernels) > 1:
            raise UserError("windows of different widths fit a fixed length differently often; give one kernel.")
        if self.length is not None and self.positions < 1:
            raise UserError(f"no window of {self.kernels[0]} fits {self.length} tokens so often; raise length.")

    @property
    def positions(self) -> int:
        """What a fixed length leaves of itself."""
        left = self.length or 0
        for _ in self.channels:
            left = (left - self.kernels[0]) // self.stride + 1
        return left


class CNNEncoder(nn.Module):
    """Each position of a layer sees a window of the one below; what is padding is zero in every layer."""

    def __init__(self, config: CNNConfig):
        super().__init__()
        self.stride, self.kernels = config.stride, config.kernels
        self.context = config.length
        self.width = len(config.kernels) * config.channels[-1]
        sizes = (config.embedding, *config.channels)
        self.towers = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(a, b, kernel, config.stride) for a, b in pairwise(sizes))
            for kernel in config.kernels
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        x = self.dropout(x) * mask.unsqueeze(-1)
        if self.context is not None:  # every window lies inside: shapes, and what is seen, are the same for all texts
            x = pad(x, self.context)
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        read = [self._climb(tower, x.transpose(1, 2), mask) for tower in self.towers]
        return EncoderOutput(torch.cat([vectors for vectors, _ in read], -1), read[0][1])

    def _climb(self, tower: nn.Module, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S / stride ** layers, channels) of one kernel width, and which of them stand on a real token."""
        for layer in tower:  # type: ignore[attr-defined]
            if self.context is None:  # windows are centered on every stride-th position
                before = (layer.kernel_size[0] - 1) // 2
                x = F.pad(x, (before, layer.kernel_size[0] - 1 - before))
                mask = mask[:, :: self.stride]
                x = torch.relu(layer(x)) * mask.unsqueeze(1)
            else:
                x = torch.relu(layer(x))
                mask = mask[:, : x.size(2)]
        return x.transpose(1, 2), mask
