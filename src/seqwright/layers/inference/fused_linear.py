"""Output layer and its log-softmax for inference on a GPU: few rows over a large vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwright.layers.cross_entropy import upcast
from seqwright.layers.heads import TokenHead
from seqwright.layers.inference import decoding_kernels as kernels
from seqwright.layers.inference.row_kernels import log_softmax


class FusedLinear(nn.Linear):
    """Inference-only linear layer that shares the original's parameters. The outputs of few rows are float32, without
    rounding to a shorter dtype in between. 64 rows over 50,257 tokens take 33 µs on an H200, and 157
    with cuBLAS (decision 165)."""

    def __init__(self, plain: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 2 or len(input) > kernels.MAX_ROWS or torch.is_autocast_enabled("cuda"):
            return super().forward(input)
        return kernels.linear(input, self, dtype=torch.float32)


class FusedTokenHead(TokenHead):
    """Inference-only language modeling head that shares the original's parameters."""

    def __init__(self, plain: TokenHead):
        nn.Module.__init__(self)
        self.readout = FusedLinear(plain.readout)

    def log_probs(self, hidden: Tensor) -> Tensor:
        logits = self.readout(hidden)
        few = logits.dim() == 2 and len(logits) <= kernels.MAX_ROWS and logits.dtype == torch.float32
        return log_softmax(logits) if few else upcast(logits).log_softmax(-1)
