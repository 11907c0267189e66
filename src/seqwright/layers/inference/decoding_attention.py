"""A Triton kernel for the attention of a decoding step: one new token in each row over a static KV cache.

Rotation, QK-norm and the write to the cache are parts of it. Only slots that a source has filled are read, and once for
all beams and query heads that share them.
"""

from __future__ import annotations

import threading

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from seqwright.layers.inference.decoding_kernels import counters, launch_options, wait
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.tree_cache import TreeCache

KEYS = 64
"""Keys that a program of attention reads at a time; twice as many where programs are few."""
PROGRAMS = 132
"""Programs that keep a GPU busy: with fewer key-value heads of all sources together, several share the slots of one."""
MAX_TILE = 16384
"""Bytes of keys that a program reads at a time at most: with values, twice each, they fit into the shared memory of any
GPU since Ampere."""
MAX_QUERIES = 64
"""Queries of a program at most, beams of a source times query heads of a key-value head; PyTorch computes more."""
MAX_PARTS = 16
"""Programs that share the slots of a head at most."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _heads(  # type: ignore[no-untyped-def]
    source, place, size, inside, scale, cosine, sine, qk_norm: tl.constexpr, rotary: tl.constexpr
):
    """Queries or keys (Q, E) at the pointers (Q,) of heads, normalized and rotated as the options say."""
    vectors = tl.load(source[:, None] + place[None, :], mask=inside, other=0.0).to(tl.float32)
    half = size // 2
    other = (place + half) % size
    partners = vectors
    if rotary:  # pairs (i, i + E/2) of a head are rotated, Llama's layout: the other feature of each
        partners = tl.load(source[:, None] + other[None, :], mask=inside, other=0.0).to(tl.float32)
    if qk_norm:
        real = place < size
        factor = tl.rsqrt(tl.sum(vectors * vectors, 1) / size + 1e-6)[:, None]
        vectors *= factor * tl.load(scale + place, mask=real, other=0.0).to(tl.float32)[None, :]
        if rotary:
            partners *= factor * tl.load(scale + other, mask=real, other=0.0).to(tl.float32)[None, :]
    if rotary:
        cos = tl.load(cosine[:, None] + (place % half)[None, :], mask=inside, other=0.0)
        sin = tl.load(sine[:, None] + (place % half)[None, :], mask=inside, other=0.0)
        vectors = vectors * cos + tl.where((place < half)[None, :], -partners, partners) * sin
    return vectors.to(source.dtype.element_ty)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention(  # type: ignore[no-untyped-def]
    projected, keys, values, length, seen, cursor, query_scale, key_scale, cosine, sine, means, weights, arrived, out,
    heads, kv_heads, size, slots, context, branches, window, row_stride, slot_stride, softmax_scale,
    tree: tl.constexpr, qk_norm: tl.constexpr, rotary: tl.constexpr, windowed: tl.constexpr, queries: tl.constexpr,
    parts: tl.constexpr, width: tl.constexpr, block: tl.constexpr, precision: tl.constexpr, overlap: tl.constexpr,
):  # fmt: skip
    """The queries of one key-value head in all rows (beams) of a source: writes their keys and values to the cache, and
    attends to the slots of their prefixes, or to one of several parts of them; the part that arrives last puts all
    together (Dao et al. 2023, Flash-Decoding)."""
    source, shared, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group = heads // kv_heads
    query = tl.arange(0, queries)
    place = tl.arange(0, width)
    row = source * branches + query // group
    real = query < branches * group
    inside = real[:, None] & (place < size)[None, :]
    wait(overlap)
    first_position = tl.load(length + source * branches) - 1
    position = tl.load(length + row, mask=real, other=1) - 1  # of the token being read, by which its row was extended
    if tree:
        stop = (tl.load(cursor + source) - branches).to(tl.int32)
    else:  # the slot that is never read, for rows that have outgrown their capacity
        stop = tl.minimum(first_position, slots).to(tl.int32)
    own = stop + query // group
    angle = tl.minimum(position, context - 1) * (size // 2)
    cosines, sines = cosine, sine
    if rotary:
        cosines, sines = cosine + angle, sine + angle
    projected += row * (heads + 2 * kv_heads) * size  # (Q,)
    asked = projected + (shared * group + query % group) * size
    asked = _heads(asked, place, size, inside, query_scale, cosines, sines, qk_norm, rotary)
    start = source.to(tl.int64) * row_stride + shared * size
    greatest = tl.full([queries], float("-inf"), tl.float32)
    total = tl.zeros([queries], tl.float32)
    mean = tl.zeros([queries, width], tl.float32)
    if part == 0:  # which has the tokens themselves
        key = _heads(
            projected + (heads + shared) * size, place, size, inside, key_scale, cosines, sines, qk_norm, rotary
        )
        at = projected + (heads + kv_heads + shared) * size
        value = tl.load(at[:, None] + place[None, :], mask=inside, other=0.0)
        at = start + own[:, None].to(tl.int64) * slot_stride + place[None, :]
        once = inside & (query % group == 0)[:, None]
        tl.store(keys + at, key, mask=once)
        tl.store(values + at, value, mask=once)
        greatest = tl.sum(asked.to(tl.float32) * key.to(tl.float32), 1) * softmax_scale
        total += 1.0
        mean = value.to(tl.float32)
    first = 0
    if windowed:
        first = tl.maximum(first_position - window + 1, 0).to(tl.int32) // block * block
    for begin in range(first + part * block, stop, parts * block):
        slot = begin + tl.arange(0, block)
        filled = slot < stop
        at = start + slot[:, None].to(tl.int64) * slot_stride + place[None, :]
        both = filled[:, None] & (place < size)[None, :]
        read_keys = tl.load(keys + at, mask=both, other=0.0)
        read_values = tl.load(values + at, mask=both, other=0.0)
        visible = real[:, None] & filled[None, :]
        if tree:
            visible = tl.load(seen + row[:, None] * slots + slot[None, :], mask=visible, other=0) != 0
        if windowed:
            visible = visible & (slot[None, :] > position[:, None] - window)
        scores = tl.dot(asked, tl.trans(read_keys), input_precision=precision) * softmax_scale
        scores = tl.where(visible, scores, float("-inf"))
        above = tl.maximum(tl.maximum(greatest, tl.max(scores, 1)), -1e30)  # a block may hold nothing visible
        exponents = tl.exp(scores - above[:, None])
        faded = tl.exp(greatest - above)
        total = total * faded + tl.sum(exponents, 1)
        mean = mean * faded[:, None]
        mean = tl.dot(exponents.to(read_values.dtype), read_values, mean, input_precision=precision)
        greatest = above
    whole = source * kv_heads + shared
    last = True
    if parts > 1:
        index = (whole * parts + part) * queries + query
        tl.store(means + index[:, None] * width + place[None, :], mean)
        tl.store(weights + 2 * index, greatest)
        tl.store(weights + 2 * index + 1, total)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + whole, 1) == parts - 1
        if last:
            index = whole * parts * queries + query
            for other in range(parts):
                greatest = tl.maximum(greatest, tl.load(weights + 2 * (index + other * queries), volatile=True))
            total = tl.zeros([queries], tl.float32)
            mean = tl.zeros([queries, width], tl.float32)
            for other in range(parts):
                at = index + other * queries
                factor = tl.exp(tl.load(weights + 2 * at, volatile=True) - greatest)
                total += factor * tl.load(weights + 2 * at + 1, volatile=True)
                mean += factor[:, None] * tl.load(means + at[:, None] * width + place[None, :], volatile=True)
            tl.store(arrived + whole, 0)
    if last:
        at = (row * heads + shared * group + query % group) * size
        tl.store(out + at[:, None] + place[None, :], mean / total[:, None], mask=inside)


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
    branches = tree.branches if tree else 1
    out = projected.new_empty(rows, heads * size)
    cosine, sine = rotary or (None, None)
    # Tensor cores multiply 16 rows and columns at least.
    queries = max(16, triton.next_power_of_2(branches * heads // kv_heads))
    width = max(16, triton.next_power_of_2(size))
    programs = rows // branches * kv_heads
    block = KEYS if programs > 2 * PROGRAMS else 2 * KEYS
    block = max(16, min(block, MAX_TILE // (width * key.element_size())))
    parts = triton.next_power_of_2(min(triton.cdiv(PROGRAMS, programs), triton.cdiv(cache.stop, block), MAX_PARTS))
    means = weights = arrived = None
    if parts > 1:
        means = torch.empty(programs * parts * queries, width, dtype=torch.float32, device=out.device)
        weights = torch.empty(programs * parts * queries, 2, dtype=torch.float32, device=out.device)
        arrived = counters(programs, out.device, threading.get_ident())
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    _attention[(rows // branches, kv_heads, parts)](
        projected, key, value, cache.length, tree and tree.seen, tree and tree.cursor,
        getattr(query_norm, "weight", None), getattr(key_norm, "weight", None), cosine, sine,
        means, weights, arrived, out,
        heads, kv_heads, size, slots, context, branches, window or 0, key.stride(0), key.stride(1), size**-0.5,
        tree=tree is not None, qk_norm=isinstance(query_norm, nn.RMSNorm), rotary=rotary is not None,
        windowed=window is not None, queries=queries, parts=parts, width=width, block=block, precision=precision,
        num_stages=2, **launch_options(out.device),
    )  # fmt: skip
    return out
