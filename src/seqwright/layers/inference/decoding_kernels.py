"""Triton kernels of a decoding step: matrix products of few rows, with what stands beside them.

Such a step is bound by reading weights and by the number of kernels, not by arithmetic: what PyTorch does in fourteen
kernels a block takes five here, or seven above FEW_ROWS. Normalization (of few rows), bias, activation and residual sum
are parts of the product beside them.
"""

from __future__ import annotations

import functools
import threading

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

FEW_ROWS = 2
"""Rows up to which a program multiplies them one by one by weights it holds in registers; above, tensor cores do."""
WEIGHTS_HELD = 4096
"""Weights that such a program holds."""
MAX_ROWS = 256
"""Rows that the kernels are for; PyTorch's own compute more."""
PROGRAMS = 112
"""Programs of a product of many rows at most: fewer than multiprocessors, which leaves some to the next kernel."""
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu-tanh": 3, "swiglu": 4, "relu2": 5}


@functools.cache
def launch_options(device: torch.device) -> dict[str, bool]:
    """Options of every launch: programmatic dependent launch where a GPU has it (compute capability 9.0), so that a
    kernel starts, and loads its weights, while the one before it ends."""
    overlap = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"overlap": True, "launch_pdl": True} if overlap else {"overlap": False}


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def wait(overlap: tl.constexpr):  # type: ignore[no-untyped-def]
    """Waits for the kernels before this one to end; nothing that they wrote may be read earlier."""
    if overlap:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _activate(x, gate, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    if kind == 1:
        x = tl.maximum(x, 0.0)
    elif kind == 2:
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif kind == 3:  # tanh(z) = 2 σ(2z) - 1
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif kind == 4:
        x = x * gate * tl.sigmoid(gate)
    elif kind == 5:
        x = tl.maximum(x, 0.0)
        x = x * x
    return x


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _normalized(x, inside, size, eps, kind: tl.constexpr):  # type: ignore[no-untyped-def]
    """LayerNorm (1) or RMSNorm (2) of a row, without its scale."""
    if kind == 1:
        x = tl.where(inside, x - tl.sum(x, 0) / size, 0.0)
    return x * tl.rsqrt(tl.sum(x * x, 0) / size + eps)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _few_rows(  # type: ignore[no-untyped-def]
    x, weight, bias, gate_weight, gate_bias, scale, shift, residual, out, rows, inputs, outputs, eps,
    norm: tl.constexpr, has_bias: tl.constexpr, has_shift: tl.constexpr, has_residual: tl.constexpr,
    activation: tl.constexpr, columns: tl.constexpr, width: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    """Each program computes `columns` outputs of every row, one row after the other."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    place = tl.arange(0, width)
    inside = place < inputs
    valid = column < outputs
    at = column[:, None] * inputs + place[None, :]
    both = valid[:, None] & inside[None, :]
    weights = tl.load(weight + at, mask=both, other=0.0).to(tl.float32)  # (columns, width)
    added = tl.zeros([columns], tl.float32)
    if has_bias:
        added = tl.load(bias + column, mask=valid, other=0.0).to(tl.float32)
    if activation == 4:
        gates = tl.load(gate_weight + at, mask=both, other=0.0).to(tl.float32)
        gate_added = tl.zeros([columns], tl.float32)
        if has_bias:
            gate_added = tl.load(gate_bias + column, mask=valid, other=0.0).to(tl.float32)
    wait(overlap)
    for row in range(rows):
        hidden = tl.load(x + row * inputs + place, mask=inside, other=0.0).to(tl.float32)
        if norm > 0:
            hidden = _normalized(hidden, inside, inputs, eps, norm)
            hidden = hidden * tl.load(scale + place, mask=inside, other=0.0).to(tl.float32)
            if has_shift:
                hidden += tl.load(shift + place, mask=inside, other=0.0).to(tl.float32)
            hidden = hidden.to(x.dtype.element_ty).to(tl.float32)  # rounded as a normalization of its own would be
        total = tl.sum(weights * hidden[None, :], 1) + added
        gate = total
        if activation == 4:
            gate = tl.sum(gates * hidden[None, :], 1) + gate_added
        total = _activate(total, gate, activation)
        if has_residual:
            total += tl.load(residual + row * outputs + column, mask=valid, other=0.0).to(tl.float32)
        tl.store(out + row * outputs + column, total, mask=valid)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _many_rows(  # type: ignore[no-untyped-def]
    x, weight, bias, gate_weight, gate_bias, residual, partial, arrived, out, rows, inputs, outputs,
    has_bias: tl.constexpr, has_residual: tl.constexpr, activation: tl.constexpr,
    block_rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr, splits: tl.constexpr,
    precision: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    """Each program computes `columns` outputs of `block_rows` rows, or one of several sums over parts of the inputs;
    that which arrives last adds them, always in the same order (split-K)."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    row = tl.program_id(1) * block_rows + tl.arange(0, block_rows)
    part = tl.program_id(2)
    valid, real = column < outputs, row < rows
    share = tl.cdiv(inputs, splits * depth) * depth
    stop = tl.minimum((part + 1) * share, inputs)
    total = tl.zeros([block_rows, columns], tl.float32)
    gate = total
    wait(overlap)
    for start in range(part * share, stop, depth):
        place = start + tl.arange(0, depth)
        inside = place < stop
        hidden = tl.load(x + row[:, None] * inputs + place[None, :], mask=real[:, None] & inside[None, :], other=0.0)
        at = column[None, :] * inputs + place[:, None]
        both = valid[None, :] & inside[:, None]
        total = tl.dot(hidden, tl.load(weight + at, mask=both, other=0.0), total, input_precision=precision)
        if activation == 4:
            gate = tl.dot(hidden, tl.load(gate_weight + at, mask=both, other=0.0), gate, input_precision=precision)
    at = row[:, None] * outputs + column[None, :]
    both = real[:, None] & valid[None, :]
    last = True
    if splits > 1:
        tl.store(partial + part * rows * outputs + at, total, mask=both)
        tl.debug_barrier()
        tile = arrived + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        last = tl.atomic_add(tile, 1) == splits - 1
        if last:
            total = tl.zeros([block_rows, columns], tl.float32)
            for other in range(splits):
                total += tl.load(partial + other * rows * outputs + at, mask=both, other=0.0, volatile=True)
            tl.store(tile, 0)
    if last:
        if has_bias:
            total += tl.load(bias + column, mask=valid, other=0.0).to(tl.float32)[None, :]
            if activation == 4:
                gate += tl.load(gate_bias + column, mask=valid, other=0.0).to(tl.float32)[None, :]
        total = _activate(total, gate, activation)
        if has_residual:
            total += tl.load(residual + at, mask=both, other=0.0).to(tl.float32)
        tl.store(out + at, total, mask=both)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm(  # type: ignore[no-untyped-def]
    x, scale, shift, out, size, eps,
    kind: tl.constexpr, has_shift: tl.constexpr, width: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    """One row."""
    place = tl.arange(0, width)
    inside = place < size
    at = tl.program_id(0) * size + place
    by = tl.load(scale + place, mask=inside, other=0.0).to(tl.float32)
    plus = tl.zeros([width], tl.float32)
    if has_shift:
        plus = tl.load(shift + place, mask=inside, other=0.0).to(tl.float32)
    wait(overlap)
    hidden = _normalized(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), inside, size, eps, kind) * by + plus
    tl.store(out + at, hidden, mask=inside)


def normalize(x: Tensor, norm: nn.Module) -> Tensor:
    """LayerNorm or RMSNorm of rows (R, D)."""
    out = torch.empty_like(x)
    kind, scale, shift, eps = _parts(norm)
    width = triton.next_power_of_2(x.size(1))
    _norm[(len(x),)](
        x, scale, shift, out, x.size(1), eps,
        kind=kind, has_shift=shift is not None, width=width, **launch_options(x.device),
    )  # fmt: skip
    return out


def _parts(norm: nn.Module | None) -> tuple[int, Tensor | None, Tensor | None, float]:
    """The kind of a normalization for kernels, its scale, shift and epsilon."""
    match norm:
        case nn.LayerNorm():
            return 1, norm.weight, norm.bias, norm.eps
        case nn.RMSNorm():
            return 2, norm.weight, None, norm.eps or 0.0
    return 0, None, None, 0.0


def linear(
    x: Tensor,
    layer: nn.Linear,
    *,
    norm: nn.Module | None = None,
    activation: str = "none",
    gate: nn.Linear | None = None,
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """residual + activation(layer(norm(x))) of rows (R, D) in a dtype, by default that of x; swiglu is
    silu(gate(norm(x))) · layer(norm(x))."""
    x = x.contiguous()  # the last position of a prompt is a view
    rows, inputs = x.shape
    outputs = layer.out_features
    out = torch.empty(rows, outputs, dtype=dtype or x.dtype, device=x.device)
    gating = layer if gate is None else gate
    weights = (layer.weight, layer.bias, gating.weight, gating.bias)
    flags = {
        "has_bias": layer.bias is not None,
        "has_residual": residual is not None,
        "activation": ACTIVATIONS[activation],
    } | launch_options(x.device)
    kind, scale, shift, eps = _parts(norm)
    if rows > FEW_ROWS:
        x = x if norm is None or not kind else normalize(x, norm)
        tiles = _tiles(rows, inputs, outputs, gated=gate is not None, wide=x.element_size() == 4)
        grid = (triton.cdiv(outputs, tiles["columns"]), triton.cdiv(rows, tiles["block_rows"]), tiles["splits"])
        partial = arrived = None
        if tiles["splits"] > 1:
            partial = torch.empty(tiles["splits"], rows, outputs, dtype=torch.float32, device=x.device)
            arrived = counters(grid[0] * grid[1], x.device, threading.get_ident())
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
        _many_rows[grid](
            x, *weights, residual, partial, arrived, out, rows, inputs, outputs, **flags, **tiles, precision=precision,
        )  # fmt: skip
        return out
    width = triton.next_power_of_2(inputs)
    columns = max(1, WEIGHTS_HELD // width // (1 if gate is None else 2))
    _few_rows[(triton.cdiv(outputs, columns),)](
        x, *weights, scale, shift, residual, out, rows, inputs, outputs, eps, **flags,
        norm=kind, has_shift=shift is not None, columns=columns, width=width,
    )  # fmt: skip
    return out


def _tiles(rows: int, inputs: int, outputs: int, *, gated: bool, wide: bool) -> dict[str, int]:
    """How a product of many rows is split among programs: where it can be, nearly one for each multiprocessor; more of
    an output layer, which reads most (measured on an H200, docs/experiments.md)."""
    fitting = max(16, triton.next_power_of_2(rows))
    if outputs >= 8192:  # all rows together where they fit: weights are read once
        tall = rows > 64 and not wide
        block_rows, stages = min(128 if tall else 64, fitting), 3 if tall else 5
        return {"block_rows": block_rows, "columns": 64, "depth": 32 if wide else 64, "splits": 1, "num_stages": stages}
    block_rows = min(64, fitting)
    splits = 1 if gated else min(4, max(1, inputs // 1024))
    programs = triton.cdiv(rows, block_rows) * splits
    columns = next((n for n in (16, 32) if triton.cdiv(outputs, n) * programs <= PROGRAMS), 64)
    depth = 32 if wide or gated else 128
    return {"block_rows": block_rows, "columns": columns, "depth": depth, "splits": splits, "num_stages": 4}


@functools.cache
def counters(count: int, device: torch.device, thread: int) -> Tensor:
    """Zeros that programs which share their work count up from, and reset; a thread launches one kernel at a time."""
    return torch.zeros(count, dtype=torch.int32, device=device)
