"""KV cache: prefixes shared by the rows of a source are stored once, and each row attends to its own prefix only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention import SelfAttention, additive_mask
from seqwright.layers.kv_cache import KVCache
from seqwright.layers.slot_cache import SlotCache
from seqwright.layers.tree_cache import TreeCache

H, E = 3, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def empty(rows: int, capacity: int, layers: int = 2) -> SlotCache:
    return SlotCache.empty(rows, layers, H, E, capacity, torch.zeros((), dtype=torch.float64))


def append(cache: Any, new: Tensor, count: Tensor | None = None) -> Any:
    """The cache after tokens with these keys (R, T, H, E) in every layer and their negatives as values."""
    cache = cache.extended(new.size(1), count)
    for layer in range(cache.key.size(1)):
        cache.write(layer, new, -new)
    return cache


def prefix_keys(cache: KVCache, row: int, layer: int = 1) -> Tensor:
    """(K, H, E): the keys of a row's prefix, by position."""
    cache = cache.tree() if isinstance(cache, SlotCache) else cache
    assert isinstance(cache, TreeCache)
    source, slots = row // cache.branches, cache.seen[row].nonzero().squeeze(1)
    slots = slots[cache.place[source, slots].argsort()]
    assert_close(cache.value[source, layer, slots], -cache.key[source, layer, slots])
    return cache.key[source, layer, slots]


def test_kv_cache_row_sees_its_real_tokens() -> None:
    first, second = random(2, 3, H, E), random(2, 2, H, E, seed=1)
    cache = append(append(empty(2, 6), first, torch.tensor([3, 1])), second)
    assert_close(prefix_keys(cache, 0), torch.cat([first[0], second[0]]))
    assert_close(prefix_keys(cache, 1), torch.cat([first[1, :1], second[1]]))
    assert cache.length.tolist() == [5, 3]
    assert cache.key_positions.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_kv_cache_select_drops_slots_of_dropped_rows() -> None:
    """Depth-first search fans out and continues one row, again and again."""
    cache = empty(1, 4)
    steps = [random(5, 1, H, E, seed=n) for n in range(6)]
    for new in steps:
        cache = append(cache.select(torch.zeros(5, dtype=torch.long)), new).select(torch.tensor([3]))
    assert cache.stop == len(steps)
    assert_close(prefix_keys(cache, 0), torch.cat([new[3] for new in steps]))


def test_kv_cache_mask_is_causal_and_windowed() -> None:
    cache = empty(2, 9).extended(3, torch.tensor([3, 1]))
    positions = cache.positions(2)
    assert positions.tolist() == [[3, 4], [1, 2]]
    after = cache.extended(2)
    assert after.mask(positions).long().tolist() == [
        [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]],
        [[[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]],
    ]
    assert after.mask(positions, window=2)[0].long().tolist() == [[[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]]


@pytest.mark.parametrize("static", [False, True])
def test_kv_cache_reorder_shares_prefixes_of_beams(static: bool) -> None:
    prompt = random(2, 2, H, E)
    cache = append(empty(2, 6), prompt).select(torch.tensor([0, 0, 1, 1]))
    cache = cache.static(9) if static else cache
    expected = [prompt[0], prompt[0], prompt[1], prompt[1]]
    address = cache.key.data_ptr()
    for step, rows in enumerate(([0, 1, 2, 3], [1, 1, 3, 2], [0, 0, 2, 2], [1, 0, 2, 3])):
        new = random(4, 1, H, E, seed=step)
        cache = append(cache.reorder(torch.tensor(rows)), new)
        expected = [torch.cat([expected[parent], new[row]]) for row, parent in enumerate(rows)]
        for row, keys in enumerate(expected):
            assert_close(prefix_keys(cache, row), keys)
    assert cache.key.data_ptr() == address  # nothing was copied
    assert cache.mask(cache.positions(1) - 1).view(4, -1).sum(1).tolist() == [6, 6, 6, 6]


def test_kv_cache_is_compacted_before_buffers_grow() -> None:
    cache = append(empty(1, 1), random(1, 1, H, E)).select(torch.tensor([0, 0, 0]))
    expected = [prefix_keys(cache, row) for row in range(3)]
    for step in range(40):
        new = random(3, 1, H, E, seed=step)
        cache = append(cache.reorder(torch.tensor([step % 3] * 3)), new)  # all rows continue one of them
        expected = [torch.cat([expected[step % 3], row]) for row in new]
    assert_close([prefix_keys(cache, row) for row in range(3)], expected)
    assert cache.compacted().stop == 40 + 3
    assert cache.place.size(1) < 1 + 3 * 40


def test_kv_cache_padding_may_exceed_the_capacity() -> None:
    first, second, third = random(2, 3, H, E), random(2, 1, H, E, seed=1), random(1, 2, H, E, seed=2)
    cache = append(append(empty(2, 4), first, torch.tensor([3, 1])), second)
    one = torch.tensor([1])
    cache = append(cache.select(one, one), third)  # the long row is finished, the short one continues to the end
    assert_close(prefix_keys(cache, 0), torch.cat([first[1, :1], second[1], third[0]]))


@pytest.mark.parametrize("sources", [[1, 0], [1]])
def test_kv_cache_select_and_cat_keep_prefixes(sources: list[int]) -> None:
    written, other = random(2, 3, H, E), random(1, 1, H, E, seed=1)
    cache = append(empty(2, 6), written)
    rows = [row for row in sources for _ in range(2)]
    selected = cache.select(torch.tensor(rows), torch.tensor(sources))
    for index, row in enumerate(rows):
        assert_close(prefix_keys(selected, index), written[row])
    joined = append(empty(1, 6), other).select(torch.tensor([0, 0])).cat([selected])
    assert joined.length.tolist() == [1, 1] + [3] * len(rows)
    new = random(len(joined.seen), 1, H, E, seed=2)
    joined = append(joined, new)
    assert_close(prefix_keys(joined, 0), torch.cat([other[0], new[0]]))
    assert_close(prefix_keys(joined, 2), torch.cat([written[sources[0]], new[2]]))
    assert not joined.key[:, :, : joined.stop].isnan().any()  # masked slots have weight 0, and 0 · NaN is NaN


def test_kv_cache_selections_of_one_state_are_independent() -> None:
    prompt, one, other = random(1, 2, H, E), random(2, 1, H, E, seed=1), random(2, 1, H, E, seed=2)
    cache = append(empty(1, 9), prompt)
    first = append(cache.select(torch.tensor([0, 0])), one)
    append(cache.select(torch.tensor([0, 0])), other)
    assert_close(prefix_keys(first, 1), torch.cat([prompt[0], one[1]]))


@pytest.mark.parametrize("beams", [1, 2])
def test_kv_cache_truncate_forgets_the_last_tokens(beams: int) -> None:
    """A truncated row continues as one that never read the tokens behind (speculation)."""
    prompt, wrong, right = random(2, 3, H, E), random(2 * beams, 2, H, E, seed=1), random(2 * beams, 1, H, E, seed=2)
    rows = torch.arange(2).repeat_interleave(beams)
    cache = append(append(empty(2, 6), prompt).select(rows), wrong)
    kept = torch.tensor([3, 4]).repeat_interleave(beams)
    cache = append(cache.truncate(kept), right)
    assert cache.length.tolist() == (kept + 1).tolist()
    for row, length in enumerate(kept.tolist()):
        expected = torch.cat([prompt[rows[row]], wrong[row, : length - 3], right[row]])
        assert_close(prefix_keys(cache, row), expected)


def test_kv_cache_put_replaces_rows_in_place() -> None:
    """A freed slot is taken over without copying the other rows."""
    old, new, more = random(3, 2, H, E), random(1, 3, H, E, seed=1), random(3, 1, H, E, seed=2)
    cache = append(empty(3, 6), old)
    address = cache.key.data_ptr()
    cache = cache.put(torch.tensor([1]), append(empty(1, 6), new))
    assert cache.key.data_ptr() == address
    cache = append(cache, more)
    for row, prefix in enumerate((old[0], new[0], old[2])):
        assert_close(prefix_keys(cache, row), torch.cat([prefix, more[row]]))


def test_kv_cache_rows_beyond_the_capacity_leave_the_others_alone() -> None:
    """Free slots of the engine are stepped although nobody reads them."""
    old, new = random(2, 2, H, E), random(1, 1, H, E, seed=1)
    cache = append(empty(2, 3), old)
    steps = [random(2, 1, H, E, seed=2 + n) for n in range(3)]
    for step in steps:
        cache = append(cache, step)
    cache = append(cache.put(torch.tensor([0]), append(empty(1, 3), new)), steps[0])
    assert_close(prefix_keys(cache, 0), torch.cat([new[0], steps[0][0]]))


def test_padded_slots_of_kv_cache_are_never_attended() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(H * E, H).double()
    chunk, more = random(2, 3, H * E), random(2, 1, H * E, seed=1)
    outputs = []
    for noise in (0.0, 100.0):
        cache = empty(2, 5, layers=1)
        padded = chunk.clone()
        padded[1, 1:] += noise
        for x, count in ((padded, torch.tensor([3, 1])), (more, None)):
            positions = cache.positions(x.size(1))
            cache = cache.extended(x.size(1), count)
            output = attention(x, positions, cache, bias=additive_mask(cache.mask(positions), x))
        outputs.append(output)
    assert_close(outputs[0], outputs[1])
