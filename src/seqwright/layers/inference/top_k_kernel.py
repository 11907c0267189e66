"""A Triton kernel for the largest values of parts of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.layers.inference.decoding_kernels import launch_options, wait

GROUP = 16
"""Values of which a program holds the greatest that is left."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _largest(  # type: ignore[no-untyped-def]
    x, values, indices, size, many, block: tl.constexpr, group: tl.constexpr, overlap: tl.constexpr
):
    """The largest values of one part of a row, one after the other: the greatest of those that its groups have left, in
    whose place comes the next of the same group, which is read again. Of equal values the first comes first."""
    row, part = tl.program_id(0), tl.program_id(1)
    groups: tl.constexpr = block // group
    # A group is every so manieth value, so that a thread finds its greatest without the others.
    one, step = tl.arange(0, groups), tl.arange(0, group) * groups
    inside = step[:, None] + one[None, :]
    begin = part * block
    x += row.to(tl.int64) * size + begin
    at = (row * tl.num_programs(1) + part) * many
    wait(overlap)
    read = tl.load(x + inside, mask=begin + inside < size, other=float("-inf"))
    left, turn = tl.max(read, 0, return_indices=True)
    where = turn * groups + one
    for n in range(many):
        value = tl.max(left, 0)
        taken = tl.min(tl.where(left == value, where, block), 0)
        tl.store(values + at + n, value)
        tl.store(indices + at + n, tl.minimum(begin + taken, size - 1).to(tl.int64))
        first = taken % groups
        place = step + first
        again = tl.load(x + place, mask=begin + place < size, other=float("-inf"))
        after = (again < value) | ((again == value) & (place > taken))
        following, next_turn = tl.max(tl.where(after, again, float("-inf")), 0, return_indices=True)
        left = tl.where(one == first, following, left)
        where = tl.where(one == first, next_turn * groups + first, where)


def largest_of_parts(x: Tensor, many: int, part: int) -> tuple[Tensor, Tensor]:
    """Values and indices (R, P · M): the `many` largest of each of the P parts of rows (R, N); minus infinity, of any
    index, where a part has fewer."""
    rows, size = x.shape
    parts = triton.cdiv(size, part)
    values = torch.empty(rows, parts * many, dtype=x.dtype, device=x.device)
    indices = torch.empty(rows, parts * many, dtype=torch.long, device=x.device)
    _largest[(rows, parts)](x, values, indices, size, many, block=part, group=GROUP, **launch_options(x.device))
    return values, indices
