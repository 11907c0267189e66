"""The largest values of each row: on a GPU in one pass over large rows by many programs."""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.layers.inference.availability import has_triton

PART = 4096
"""Values of which a program takes the largest, one after the other."""
MAX_MANY = 32
"""Values to take from which `topk` is faster."""


def largest(x: Tensor, many: int) -> tuple[Tensor, Tensor]:
    """Values and indices (…, M) among which are the `many` largest of each row (…, N); on a CPU just those."""
    if many > MAX_MANY or not _has_kernel(x):
        return x.topk(many)
    from seqwright.layers.inference.top_k_kernel import largest_of_parts  # needs Triton

    values, indices = largest_of_parts(x.reshape(-1, x.size(-1)).contiguous(), many, PART)
    return values.view(*x.shape[:-1], -1), indices.view(*x.shape[:-1], -1)


def argmax(x: Tensor) -> Tensor:
    """(R,): the index of the greatest value of each row (R, N), the first of several."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and not x.requires_grad:
        return torch.from_numpy(x.numpy().argmax(-1))  # 16 rows of 8,000 take 9 µs, with PyTorch 115
    if not _has_kernel(x):
        return x.argmax(-1)
    from seqwright.layers.inference import row_kernels  # needs Triton

    return row_kernels.argmax(x)


def _has_kernel(x: Tensor) -> bool:
    """Whether rows are large enough for a kernel of our own, and on a GPU that has it."""
    large = x.is_cuda and x.dtype == torch.float32 and x.size(-1) > PART
    return large and has_triton()
