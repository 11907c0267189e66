"""A Triton kernel for softmax cross-entropy: loss and gradient of logits in one pass over them, in place.

Logits of a large vocabulary are the largest tensor of a training step. PyTorch's kernels read and write them four times
(log-softmax, its gradient, casts). A kernel here reads them once and writes their gradient over them, up to a factor of
each row, which only the whole row tells; with label smoothing, another reads them twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.core.batch import IGNORE

BLOCK = 4096
"""Logits that a program holds at a time."""
RISE = tl.constexpr(20.0)
"""How far logits may be above the shift of their row: e²⁰ is far from what bfloat16 can hold."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scaled_kernel(logits, target, loss, factor, stride, size, ignore, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row, once: exp(x - shift) over its logits, less their sum at the target, which divided by that sum is the
    gradient. The shift is the greatest logit of the first block; where a later block is far above it, the shift rises,
    and what was written before is multiplied down."""
    row = tl.program_id(0).to(tl.int64)
    row_target = tl.load(target + row)
    real = row_target != ignore
    place = tl.where(real, row_target, 0)
    logits += row * stride
    columns = tl.arange(0, block)
    chosen = tl.load(logits + place).to(tl.float32)
    shift = tl.max(tl.load(logits + columns, mask=columns < size, other=float("-inf")).to(tl.float32), 0)
    totals = tl.zeros((block,), tl.float32)
    tl.debug_barrier()  # all threads have read the target's logit before it is overwritten
    for start in range(0, stride, block):
        x = tl.load(logits + start + columns, mask=start + columns < size, other=float("-inf")).to(tl.float32)
        greatest = tl.max(x, 0)
        if greatest > shift + RISE:
            lower = tl.exp(shift - greatest)
            tl.debug_barrier()  # threads read what others wrote
            for before in range(0, start, block):
                written = tl.load(logits + before + columns).to(tl.float32)
                tl.store(logits + before + columns, written * lower)
            totals = totals * lower
            shift = greatest
        powers = tl.exp(x - shift)
        totals += powers
        tl.store(logits + start + columns, powers, mask=start + columns < stride)
    total = tl.sum(totals, 0)
    tl.store(loss + row, tl.where(real, shift + tl.log(total) - chosen, 0.0))
    tl.store(factor + row, tl.where(real, 1.0 / total, 0.0))
    tl.debug_barrier()
    tl.store(logits + place, tl.exp(chosen - shift) - total)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _kernel(logits, target, loss, stride, size, smoothing, ignore, smoothed: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row: online softmax (Milakov & Gimelshein 2018), then the gradient, from the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    row_target = tl.load(target + row)
    logits += row * stride
    columns = tl.arange(0, block)
    if row_target == ignore:
        for start in range(0, stride, block):
            tl.store(logits + start + columns, 0.0, mask=start + columns < stride)
        tl.store(loss + row, 0.0)
        return
    greatest = float("-inf")
    # Sums are kept for each place of a block, so that an iteration reduces nothing but the maximum over the block.
    totals = tl.zeros((block,), tl.float32)  # Σ exp(x - greatest)
    plain_sums = tl.zeros((block,), tl.float32)  # Σ x, for label smoothing
    for start in range(0, size, block):
        inside = start + columns < size
        x = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        above = tl.maximum(greatest, tl.max(x, 0))
        totals = totals * tl.exp(greatest - above) + tl.exp(x - above)
        greatest = above
        if smoothed:
            plain_sums += tl.where(inside, x, 0.0)
    log_total = greatest + tl.log(tl.sum(totals, 0))
    spread = smoothing / size
    chosen = tl.load(logits + row_target).to(tl.float32)
    tl.store(loss + row, log_total - (1 - smoothing) * chosen - spread * tl.sum(plain_sums, 0))
    tl.debug_barrier()  # the target's logit is read before it is overwritten
    for start in range(0, stride, block):
        inside = start + columns < size
        x = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        gradient = tl.exp(x - log_total) - spread - tl.where(start + columns == row_target, 1 - smoothing, 0.0)
        gradient = tl.where(inside, gradient, 0.0)  # columns beyond the vocabulary only align it
        tl.store(logits + start + columns, gradient, mask=start + columns < stride)


def loss_and_gradient_(logits: Tensor, target: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor | None]:
    """Summed -log p(target) of logits (N, V or more), of which `size` columns are the vocabulary; afterwards `logits`
    holds its gradient, which is to be multiplied by the factors (N,), if there are any."""
    loss = torch.empty(len(target), dtype=torch.float32, device=logits.device)
    grid, stride = (len(target),), logits.stride(0)
    if smoothing or logits.dtype == torch.float16:  # which cannot hold e²⁰
        smoothed = smoothing > 0
        _kernel[grid](
            logits, target, loss, stride, size, smoothing, IGNORE, smoothed=smoothed, block=BLOCK, num_warps=4
        )
        return loss.sum(), None
    factor = torch.empty_like(loss)
    _scaled_kernel[grid](logits, target, loss, factor, stride, size, IGNORE, block=BLOCK, num_warps=8)
    return loss.sum(), factor
