"""The largest values of each row on a GPU: one pass over large rows, where `topk` takes several."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

PART = 4096
"""Values of which a program takes the largest, one after the other."""
MAX_MANY = 32
"""Values to take from which `topk` is faster."""


def largest(x: Tensor, many: int) -> tuple[Tensor, Tensor]:
    """Values and indices (…, M) among which are the `many` largest of each row (…, N); on a CPU just those."""
    parts = -(-x.size(-1) // PART)
    large = parts > 1 and many <= MAX_MANY and x.is_cuda and x.dtype == torch.float32
    if not large or torch.version.hip or not importlib.util.find_spec("triton"):
        return x.topk(many)
    from seqwright.layers.inference.top_k_kernel import largest_of_parts  # needs Triton

    values, indices = largest_of_parts(x.reshape(-1, x.size(-1)).contiguous(), many, PART)
    return values.view(*x.shape[:-1], -1), indices.view(*x.shape[:-1], -1)
