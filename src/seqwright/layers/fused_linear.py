"""Output layer for inference on a GPU: few rows over a large vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers import decoding_kernels as kernels

MAX_ROWS = 256
"""Rows above which PyTorch's own product is as fast."""


class FusedLinear(nn.Linear):
    """Inference-only linear layer that shares the original's parameters. The outputs of few rows are float32, without
    rounding to a shorter dtype in between; vocabularies of any size have the same kernel, while those that are no
    multiple of 8 take cuBLAS four times as long."""

    def __init__(self, plain: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 2 or len(input) > MAX_ROWS or torch.is_autocast_enabled("cuda"):
            return super().forward(input)
        return kernels.linear(input, self, dtype=torch.float32)
