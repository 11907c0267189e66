"""A Triton kernel for the largest values of parts of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.layers.inference.decoding_kernels import launch_options, wait


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _largest(  # type: ignore[no-untyped-def]
    x, values, indices, size, many, block: tl.constexpr, overlap: tl.constexpr
):
    """The largest values of one part of a row, each found among those that are left."""
    row, part = tl.program_id(0), tl.program_id(1)
    inside = tl.arange(0, block)
    place = part * block + inside
    wait(overlap)
    left = tl.load(x + row.to(tl.int64) * size + place, mask=place < size, other=float("-inf"))
    at = (row * tl.num_programs(1) + part) * many
    for n in range(many):
        value, index = tl.max(left, 0, return_indices=True)
        tl.store(values + at + n, value)
        tl.store(indices + at + n, tl.minimum(part * block + index, size - 1).to(tl.int64))
        left = tl.where(inside == index, float("-inf"), left)


def largest_of_parts(x: Tensor, many: int, part: int) -> tuple[Tensor, Tensor]:
    """Values and indices (R, P · M): the `many` largest of each of the P parts of rows (R, N); minus infinity, of any
    index, where a part has fewer."""
    rows, size = x.shape
    parts = triton.cdiv(size, part)
    values = torch.empty(rows, parts * many, dtype=x.dtype, device=x.device)
    indices = torch.empty(rows, parts * many, dtype=torch.long, device=x.device)
    _largest[(rows, parts)](x, values, indices, size, many, block=part, **launch_options(x.device))
    return values, indices
