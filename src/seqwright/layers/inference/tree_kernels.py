"""Triton kernels of a static tree cache: beams reordered in place, and a slot for one more token of each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.layers.inference.decoding_kernels import launch_options, wait

SLOTS = 256
"""Slots of a source that a program reorders."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _reorder(  # type: ignore[no-untyped-def]
    rows, length, seen, branches, slots, beams: tl.constexpr, block: tl.constexpr, overlap: tl.constexpr
):
    """Some slots of all rows of a source, which are read before any is written."""
    source, part = tl.program_id(0), tl.program_id(1)
    beam = tl.arange(0, beams)
    real = beam < branches
    row = source * branches + beam
    slot = part * block + tl.arange(0, block)
    inside = real[:, None] & (slot < slots)[None, :]
    wait(overlap)
    parent = tl.load(rows + row, mask=real, other=0)
    taken = tl.load(seen + parent[:, None] * slots + slot[None, :], mask=inside, other=0)
    tokens = tl.load(length + parent, mask=real, other=0)
    tl.debug_barrier()
    tl.store(seen + row[:, None] * slots + slot[None, :], taken, mask=inside)
    if part == 0:
        tl.store(length + row, tokens, mask=real)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _extend(  # type: ignore[no-untyped-def]
    length, extended, place, seen, cursor, branches, slots, beams: tl.constexpr, overlap: tl.constexpr
):
    """The rows of a source: each sees its own new slot, not those of its siblings."""
    source = tl.program_id(0)
    beam = tl.arange(0, beams)
    real = beam < branches
    row = source * branches + beam
    wait(overlap)
    first = tl.load(cursor + source)
    position = tl.load(length + row, mask=real, other=0)
    tl.debug_barrier()
    tl.store(extended + row, position + 1, mask=real)
    tl.store(place + source * slots + first + beam, position, mask=real)
    own = (beam[:, None] == beam[None, :]).to(tl.uint8)
    tl.store(seen + row[:, None] * slots + first + beam[None, :], own, mask=real[:, None] & real[None, :])
    tl.store(cursor + source, first + branches)


def reorder_(rows: Tensor, length: Tensor, seen: Tensor, branches: int) -> None:
    """Rows (R,) of the lengths (R,) and slots seen (R, S), each from its own source, in their place."""
    slots = seen.size(1)
    _reorder[(len(seen) // branches, triton.cdiv(slots, SLOTS))](
        rows, length, seen.view(torch.uint8), branches, slots,
        beams=max(8, triton.next_power_of_2(branches)), block=SLOTS, **launch_options(seen.device),
    )  # fmt: skip


def extend_(length: Tensor, place: Tensor, seen: Tensor, cursor: Tensor, branches: int) -> Tensor:
    """Writes positions and visibility of one more token of every row to the next free slots, and moves the cursor: the
    lengths (R,) after."""
    extended = torch.empty_like(length)
    _extend[(len(place),)](
        length, extended, place, seen.view(torch.uint8), cursor, branches, place.size(1),
        beams=max(8, triton.next_power_of_2(branches)), **launch_options(seen.device),
    )  # fmt: skip
    return extended
