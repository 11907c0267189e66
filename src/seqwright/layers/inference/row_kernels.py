"""Triton kernels over the log-probabilities of few rows: log-softmax and argmax, each row shared by many programs.

PyTorch gives a row to one program, which takes 13 µs for 50,257 tokens on an H200, however few the rows.
"""

from __future__ import annotations

import threading

import torch
import triton
import triton.language as tl
from torch import Tensor

from seqwright.layers.inference.decoding_kernels import counters, launch_options, wait

PART = 4096
"""Values of a row that a program reads."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _log_total(  # type: ignore[no-untyped-def]
    x, greatest, total, arrived, out, size, parts, block: tl.constexpr, wide: tl.constexpr, overlap: tl.constexpr
):
    """log Σ exp of a row: that which arrives last adds the sums of its parts, always in the same order."""
    row, part = tl.program_id(0), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    wait(overlap)
    values = tl.load(x + row.to(tl.int64) * size + place, mask=place < size, other=float("-inf"))
    most = tl.maximum(tl.max(values, 0), -1e30)  # a part may hold nothing but minus infinity
    tl.store(greatest + row * parts + part, most)
    tl.store(total + row * parts + part, tl.sum(tl.exp(values - most), 0))
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == parts - 1:
        each = tl.arange(0, wide)
        maxima = tl.load(greatest + row * parts + each, mask=each < parts, other=-1e30, volatile=True)
        sums = tl.load(total + row * parts + each, mask=each < parts, other=0.0, volatile=True)
        most = tl.max(maxima, 0)
        tl.store(out + row, most + tl.log(tl.sum(sums * tl.exp(maxima - most), 0)))
        tl.store(arrived + row, 0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _subtract(x, log_total, out, size, block: tl.constexpr, overlap: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    place = tl.program_id(1) * block + tl.arange(0, block)
    at = row.to(tl.int64) * size + place
    wait(overlap)
    values = tl.load(x + at, mask=place < size, other=0.0) - tl.load(log_total + row)
    tl.store(out + at, values, mask=place < size)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _argmax(  # type: ignore[no-untyped-def]
    x, values, indices, arrived, out, size, parts, block: tl.constexpr, wide: tl.constexpr, overlap: tl.constexpr
):
    """The first of the greatest values of a row."""
    row, part = tl.program_id(0), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    wait(overlap)
    here = tl.load(x + row.to(tl.int64) * size + place, mask=place < size, other=float("-inf"))
    value, index = tl.max(here, 0, return_indices=True)
    tl.store(values + row * parts + part, value)
    tl.store(indices + row * parts + part, tl.minimum(part * block + index, size - 1))
    tl.debug_barrier()
    if tl.atomic_add(arrived + row, 1) == parts - 1:
        each = tl.arange(0, wide)
        maxima = tl.load(values + row * parts + each, mask=each < parts, other=float("-inf"), volatile=True)
        _, winner = tl.max(maxima, 0, return_indices=True)
        tl.store(out + row, tl.load(indices + row * parts + winner, volatile=True).to(tl.int64))
        tl.store(arrived + row, 0)


def log_softmax(x: Tensor) -> Tensor:
    """Log-softmax of rows (R, V) in float32."""
    x = x.contiguous()
    rows, size = x.shape
    parts = triton.cdiv(size, PART)
    greatest, total = (torch.empty(rows, parts, device=x.device) for _ in range(2))
    log_total, out = torch.empty(rows, device=x.device), torch.empty_like(x)
    arrived = counters(rows, x.device, threading.get_ident())
    options = {"block": PART, "num_warps": 8, **launch_options(x.device)}
    wide = triton.next_power_of_2(parts)
    _log_total[(rows, parts)](x, greatest, total, arrived, log_total, size, parts, wide=wide, **options)
    _subtract[(rows, parts)](x, log_total, out, size, **options)
    return out


def argmax(x: Tensor) -> Tensor:
    """(R,): the index of the greatest value of each row (R, V) in float32, the first of several."""
    x = x.contiguous()
    rows, size = x.shape
    parts = triton.cdiv(size, PART)
    values = torch.empty(rows, parts, device=x.device)
    indices = torch.empty(rows, parts, dtype=torch.int32, device=x.device)
    out = torch.empty(rows, dtype=torch.long, device=x.device)
    arrived = counters(rows, x.device, threading.get_ident())
    _argmax[(rows, parts)](
        x, values, indices, arrived, out, size, parts,
        block=PART, wide=triton.next_power_of_2(parts), num_warps=8, **launch_options(x.device),
    )  # fmt: skip
    return out
