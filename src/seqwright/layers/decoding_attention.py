"""A Triton kernel for the attention of a decoding step: one new token in each row over a static KV cache.

Rotation, QK-norm and the write to the cache are parts of it. Only the slots that a row has filled are read.
"""

from __future__ import annotations

import functools
import threading

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from seqwright.layers.decoding_kernels import launch_options, wait
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.tree_cache import TreeCache

KEYS = 64
"""Keys that a program of attention reads at a time."""
PROGRAMS = 264
"""Programs that keep a GPU busy: with fewer heads of all rows together, several share the prefix of each."""
MAX_PARTS = 16
"""Programs that share a prefix at most."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _rotated(vector, partner, place, half, cosine, sine, inside):  # type: ignore[no-untyped-def]
    """Pairs (i, i + E/2) of a head rotated, Llama's layout; `partner` holds the other feature of each pair."""
    cos = tl.load(cosine + place % half, mask=inside, other=0.0)
    sin = tl.load(sine + place % half, mask=inside, other=0.0)
    return vector * cos + tl.where(place < half, -partner, partner) * sin


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _head(  # type: ignore[no-untyped-def]
    source, place, size, inside, scale, cosine, sine, qk_norm: tl.constexpr, rotary: tl.constexpr
):
    """A query or key of one head, normalized and rotated as the options say."""
    vector = tl.load(source + place, mask=inside, other=0.0).to(tl.float32)
    half = size // 2
    other = (place + half) % size
    partner = vector
    if rotary:
        partner = tl.load(source + other, mask=inside, other=0.0).to(tl.float32)
    if qk_norm:
        factor = tl.rsqrt(tl.sum(vector * vector, 0) / size + 1e-6)
        vector *= factor * tl.load(scale + place, mask=inside, other=0.0).to(tl.float32)
        if rotary:
            partner *= factor * tl.load(scale + other, mask=inside, other=0.0).to(tl.float32)
    if rotary:
        vector = _rotated(vector, partner, place, half, cosine, sine, inside)
    return vector.to(source.dtype.element_ty)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention(  # type: ignore[no-untyped-def]
    projected, keys, values, length, seen, cursor, query_scale, key_scale, cosine, sine, means, weights, arrived, out,
    heads, kv_heads, size, slots, context, branches, window, row_stride, slot_stride, softmax_scale,
    tree: tl.constexpr, qk_norm: tl.constexpr, rotary: tl.constexpr, windowed: tl.constexpr,
    parts: tl.constexpr, width: tl.constexpr, block: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    """One query head of one row: writes its key and value to the cache, and attends to the slots of its prefix, or to
    one of several parts of them; the part that arrives last puts all together (Dao et al. 2023, Flash-Decoding)."""
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    shared = head // (heads // kv_heads)
    place = tl.arange(0, width)
    inside = place < size
    wait(overlap)
    position = tl.load(length + row) - 1  # that of the token being read; its row has been extended by it
    if tree:
        own = tl.load(cursor) - branches + row % branches
        source = row // branches
        stop = slots
    else:
        own = tl.minimum(position, slots)  # the slot that is never read, for rows that have outgrown their capacity
        source = row
        stop = tl.minimum(position, slots).to(tl.int32)
    projected += row * (heads + 2 * kv_heads) * size
    if rotary:
        angle = tl.minimum(position, context - 1) * (size // 2)
        cosine += angle
        sine += angle
    query = _head(projected + head * size, place, size, inside, query_scale, cosine, sine, qk_norm, rotary)
    query = query.to(tl.float32) * softmax_scale
    start = source.to(tl.int64) * row_stride + shared * size
    greatest = float("-inf")
    total = 0.0
    mean = tl.zeros([width], tl.float32)
    if part == 0:  # which has the token itself
        key = _head(projected + (heads + shared) * size, place, size, inside, key_scale, cosine, sine, qk_norm, rotary)
        value = tl.load(projected + (heads + kv_heads + shared) * size + place, mask=inside, other=0.0)
        if head % (heads // kv_heads) == 0:
            at = start + own * slot_stride + place
            tl.store(keys + at, key, mask=inside)
            tl.store(values + at, value, mask=inside)
        greatest = tl.sum(query * key.to(tl.float32), 0)
        total = 1.0
        mean = value.to(tl.float32)
    first = 0
    if windowed:
        first = tl.maximum(position - window + 1, 0).to(tl.int32) // block * block
    for begin in range(first + part * block, stop, parts * block):
        slot = begin + tl.arange(0, block)
        visible = slot < stop
        if tree:
            visible = visible & (slot != own)
            visible = visible & (tl.load(seen + row * slots + slot, mask=slot < slots, other=0) != 0)
        if windowed:
            visible = visible & (slot > position - window)
        at = start + slot[:, None].to(tl.int64) * slot_stride + place[None, :]
        both = visible[:, None] & inside[None, :]
        read_keys = tl.load(keys + at, mask=both, other=0.0)
        read_values = tl.load(values + at, mask=both, other=0.0)
        scores = tl.sum(read_keys.to(tl.float32) * query[None, :], 1)
        scores = tl.where(visible, scores, float("-inf"))
        above = tl.maximum(tl.maximum(greatest, tl.max(scores, 0)), -1e30)  # a block may hold nothing visible
        exponents = tl.exp(scores - above)
        faded = tl.exp(greatest - above)
        total = total * faded + tl.sum(exponents, 0)
        mean = mean * faded + tl.sum(read_values.to(tl.float32) * exponents[:, None], 0)
        greatest = above
    query_row = row * heads + head
    if parts == 1:
        tl.store(out + query_row * size + place, mean / total, mask=inside)
    else:
        index = query_row * parts + part
        tl.store(means + index * width + place, mean)
        tl.store(weights + 2 * index, greatest)
        tl.store(weights + 2 * index + 1, total)
        tl.debug_barrier()
        if tl.atomic_add(arrived + query_row, 1) == parts - 1:
            every = query_row * parts + tl.arange(0, parts)
            peaks = tl.load(weights + 2 * every, volatile=True)
            factors = tl.exp(peaks - tl.max(peaks, 0))
            whole = tl.sum(factors * tl.load(weights + 2 * every + 1, volatile=True), 0)
            all_means = tl.load(means + every[:, None] * width + place[None, :], volatile=True)
            tl.store(out + query_row * size + place, tl.sum(all_means * factors[:, None], 0) / whole, mask=inside)
            tl.store(arrived + query_row, 0)


def attention(
    projected: Tensor,
    cache: KVCache,
    layer: int,
    *,
    heads: int,
    kv_heads: int,
    context: int,
    query_norm: nn.Module,
    key_norm: nn.Module,
    rotary: tuple[Tensor, Tensor] | None = None,
    window: int | None = None,
) -> Tensor:
    """(R, H · E): attention of one new token in each row, whose projections (R, (H + 2 G) · E) it also writes to a
    static cache that was extended by it; `rotary` holds the cosines and sines (context, E / 2) of all positions."""
    assert isinstance(cache, SlotCache | TreeCache)
    rows, size = len(projected), cache.key.size(-1)
    key, value = cache.key[:, layer], cache.value[:, layer]  # (B, S, G, E)
    tree = cache if isinstance(cache, TreeCache) else None
    slots = cache.size if isinstance(cache, SlotCache) else cache.key.size(2)
    out = projected.new_empty(rows, heads * size)
    cosine, sine = rotary or (None, None)
    wanted = min(triton.cdiv(PROGRAMS, rows * heads), triton.cdiv(cache.stop, KEYS), MAX_PARTS)
    parts, width = triton.next_power_of_2(wanted), triton.next_power_of_2(size)
    means = weights = arrived = None
    if parts > 1:
        means = torch.empty(rows * heads * parts, width, dtype=torch.float32, device=out.device)
        weights = torch.empty(rows * heads * parts, 2, dtype=torch.float32, device=out.device)
        arrived = _counters(rows * heads, out.device, threading.get_ident())
    _attention[(rows, heads, parts)](
        projected, key, value, cache.length, tree and tree.seen, tree and tree.cursor,
        getattr(query_norm, "weight", None), getattr(key_norm, "weight", None), cosine, sine,
        means, weights, arrived, out,
        heads, kv_heads, size, slots, context,
        tree.branches if tree else 1, window or 0, key.stride(0), key.stride(1), size**-0.5,
        tree=tree is not None, qk_norm=isinstance(query_norm, nn.RMSNorm), rotary=rotary is not None,
        windowed=window is not None, parts=parts, width=width, block=KEYS, **launch_options(out.device),
    )  # fmt: skip
    return out


@functools.cache
def _counters(count: int, device: torch.device, thread: int) -> Tensor:
    """Zeros that the kernel of attention counts up from, and resets; a thread launches one at a time."""
    return torch.zeros(count, dtype=torch.int32, device=device)
