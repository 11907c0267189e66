"""Keys and values: what rows of a source have in common is held once, and each sees its own words only."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention import SelfAttention, additive_mask
from seqwright.layers.kv_cache import KVCache

H, E = 3, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def empty(rows: int, capacity: int, layers: int = 2) -> KVCache:
    return KVCache.empty(rows, layers, H, E, capacity, torch.zeros((), dtype=torch.float64))


def read(memory: KVCache, new: Tensor, count: Tensor | None = None) -> KVCache:
    """After ids whose keys are these (R, T, H, E) in every layer, and whose values are their negatives."""
    memory = memory.extended(new.size(1), count)
    for layer in range(memory.key.size(1)):
        memory.write(layer, new, -new)
    return memory


def behind(memory: KVCache, row: int, layer: int = 1) -> Tensor:
    """(K, H, E): the keys that a row has behind it, by where they stand."""
    source, slots = row // memory.branches, memory.seen[row].nonzero().squeeze(1)
    slots = slots[memory.place[source, slots].argsort()]
    assert_close(memory.value[source, layer, slots], -memory.key[source, layer, slots])
    return memory.key[source, layer, slots]


def test_each_row_sees_what_is_real_of_it() -> None:
    first, second = random(2, 3, H, E), random(2, 2, H, E, seed=1)
    memory = read(read(empty(2, 6), first, torch.tensor([3, 1])), second)
    assert_close(behind(memory, 0), torch.cat([first[0], second[0]]))
    assert_close(behind(memory, 1), torch.cat([first[1, :1], second[1]]))
    assert memory.length.tolist() == [5, 3]
    assert memory.key_positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 1, 2]]  # where padding stands does not matter


def test_what_only_rows_saw_that_are_gone_goes_with_them() -> None:
    """Depth-first search fans out and goes on with one row, again and again."""
    memory = empty(1, 4)
    said = [random(5, 1, H, E, seed=n) for n in range(6)]
    for new in said:
        memory = read(memory.select(torch.zeros(5, dtype=torch.long)), new).select(torch.tensor([3]))
    assert memory.stop == len(said)
    assert_close(behind(memory, 0), torch.cat([new[3] for new in said]))


def test_new_positions_see_what_is_before_them_and_themselves() -> None:
    memory = empty(2, 9).extended(3, torch.tensor([3, 1]))
    positions = memory.positions(2)
    assert positions.tolist() == [[3, 4], [1, 2]]
    after = memory.extended(2)
    assert after.mask(positions).long().tolist() == [
        [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]],
        [[[1, 0, 0, 1, 0], [1, 0, 0, 1, 1]]],
    ]
    assert after.mask(positions, window=2)[0].long().tolist() == [[[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]]


@pytest.mark.parametrize("steady", [False, True])
def test_beams_part_ways_and_share_what_was_before(steady: bool) -> None:
    prompt = random(2, 2, H, E)
    memory = read(empty(2, 6), prompt).select(torch.tensor([0, 0, 1, 1]))
    memory = memory.static(9) if steady else memory
    told = [prompt[0], prompt[0], prompt[1], prompt[1]]
    held = memory.key.data_ptr()
    for step, rows in enumerate(([0, 1, 2, 3], [1, 1, 3, 2], [0, 0, 2, 2], [1, 0, 2, 3])):
        new = random(4, 1, H, E, seed=step)
        memory = read(memory.reorder(torch.tensor(rows)), new)
        told = [torch.cat([told[parent], new[row]]) for row, parent in enumerate(rows)]
        for row, ids in enumerate(told):
            assert_close(behind(memory, row), ids)
    assert memory.key.data_ptr() == held  # nothing was moved
    assert memory.mask(memory.positions(1) - 1).view(4, -1).sum(1).tolist() == [6, 6, 6, 6]


def test_slots_that_no_row_sees_are_given_up_before_buffers_grow() -> None:
    memory = read(empty(1, 1), random(1, 1, H, E)).select(torch.tensor([0, 0, 0]))
    told = [behind(memory, row) for row in range(3)]
    for step in range(40):
        new = random(3, 1, H, E, seed=step)
        memory = read(memory.reorder(torch.tensor([step % 3] * 3)), new)  # all go on from one of them
        told = [torch.cat([told[step % 3], row]) for row in new]
    assert_close([behind(memory, row) for row in range(3)], told)
    assert memory.compacted().stop == 40 + 3
    assert memory.place.size(1) < 1 + 3 * 40


def test_padding_may_count_for_more_than_the_capacity() -> None:
    first, second, third = random(2, 3, H, E), random(2, 1, H, E, seed=1), random(1, 2, H, E, seed=2)
    memory = read(read(empty(2, 4), first, torch.tensor([3, 1])), second)
    one = torch.tensor([1])
    memory = read(memory.select(one, one), third)  # the long row is finished, the short one goes on to the end
    assert_close(behind(memory, 0), torch.cat([first[1, :1], second[1], third[0]]))


@pytest.mark.parametrize("sources", [[1, 0], [1]])
def test_selecting_and_joining_keep_what_was_read(sources: list[int]) -> None:
    written, other = random(2, 3, H, E), random(1, 1, H, E, seed=1)
    memory = read(empty(2, 6), written)
    rows = [row for row in sources for _ in range(2)]
    taken = memory.select(torch.tensor(rows), torch.tensor(sources))
    for place, row in enumerate(rows):
        assert_close(behind(taken, place), written[row])
    joined = read(empty(1, 6), other).select(torch.tensor([0, 0])).cat(taken)
    assert joined.length.tolist() == [1, 1] + [3] * len(rows)
    new = random(len(joined.seen), 1, H, E, seed=2)
    joined = read(joined, new)
    assert_close(behind(joined, 0), torch.cat([other[0], new[0]]))
    assert_close(behind(joined, 2), torch.cat([written[sources[0]], new[2]]))
    assert not joined.key[:, :, : joined.stop].isnan().any()  # unseen slots meet a weight of zero, and 0 · NaN is NaN


def test_selections_of_one_state_do_not_disturb_each_other() -> None:
    prompt, one, other = random(1, 2, H, E), random(2, 1, H, E, seed=1), random(2, 1, H, E, seed=2)
    memory = read(empty(1, 9), prompt)
    first = read(memory.select(torch.tensor([0, 0])), one)
    read(memory.select(torch.tensor([0, 0])), other)
    assert_close(behind(first, 1), torch.cat([prompt[0], one[1]]))


def test_what_lies_in_padded_slots_is_never_attended() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(H * E, H).double()
    chunk, more = random(2, 3, H * E), random(2, 1, H * E, seed=1)
    answers = []
    for noise in (0.0, 100.0):
        memory = empty(2, 5, layers=1)
        padded = chunk.clone()
        padded[1, 1:] += noise
        for x, count in ((padded, torch.tensor([3, 1])), (more, None)):
            positions = memory.positions(x.size(1))
            memory = memory.extended(x.size(1), count)
            answer = attention(x, positions, memory, bias=additive_mask(memory.mask(positions), x))
        answers.append(answer)
    assert_close(answers[0], answers[1])
