"""RMSNorm that keeps its fused kernel under autocast."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """RMSNorm (Zhang & Sennrich 2019). Its gain is cast to the dtype of the input: of mixed ones, as under autocast,
    PyTorch computes a dozen kernels instead of one."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)
