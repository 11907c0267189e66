"""Attention: the fast path is the weighted mean it claims to be, and what is remembered lies where it should."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention import Attend, KeyValues, SelfAttention, hiding

B, H, T, K, E = 2, 3, 4, 6, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_mask(*shape: int) -> Tensor:
    """Random, but every position may attend the first."""
    mask = random(*shape, seed=9) > 0
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    "mask",
    [None, some_mask(B, 1, 1, K), some_mask(1, 1, T, K), some_mask(B, 1, T, K)],
    ids=["none", "of a source", "of positions", "of both"],
)
def test_attending_is_averaging_with_the_weights(mask: Tensor | None) -> None:
    query, key, value = random(B, H, T, E), random(B, H, K, E, seed=1), random(B, H, K, E, seed=2)
    weights = Attend().weights(query, key, mask=mask)  # (B, H, T, K)
    assert_close(Attend()(query, key, value, mask=mask), weights @ value)
    assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    if mask is not None:
        assert (weights.masked_select(~mask) == 0).all()


@pytest.mark.parametrize("groups", [1, H])
@pytest.mark.parametrize("mask", [None, some_mask(B, 1, T, K)], ids=["seen", "masked"])
@pytest.mark.parametrize("rows", [None, 1, B])
def test_so_it_is_with_biases_and_shared_keys(groups: int, mask: Tensor | None, rows: int | None) -> None:
    query, key, value = random(B, H, T, E), random(B, groups, K, E, seed=1), random(B, groups, K, E, seed=2)
    bias = None if rows is None else random(rows, H, T, K, seed=3)
    weights = Attend().weights(query, key, mask=mask, bias=bias)  # (B, H, T, K)
    assert_close(Attend()(query, key, value, mask=mask, bias=bias), weights @ value.repeat_interleave(H // groups, 1))
    if bias is not None:
        assert (weights - Attend().weights(query, key, mask=mask)).abs().max() > 0.1


def test_causal_attending_is_averaging_with_the_causal_weights() -> None:
    query, key, value = random(B, H, T, E), random(B, H, T, E, seed=1), random(B, H, T, E, seed=2)
    weights = Attend().weights(query, key, causal=True)
    assert_close(Attend()(query, key, value, causal=True), weights @ value)
    assert (weights.triu(1) == 0).all()


def test_dropout_acts_in_training_only() -> None:
    query, key, value = random(B, H, T, E), random(B, H, K, E, seed=1), random(B, H, K, E, seed=2)
    attend = Attend(dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(attend(query, key, value), attend(query, key, value))
    attend.eval()
    assert_close(attend(query, key, value), Attend()(query, key, value))


def empty(rows: int, capacity: int, layers: int = 2) -> KeyValues:
    return KeyValues.empty(rows, layers, H, E, capacity, torch.zeros((), dtype=torch.float64))


def test_each_row_is_written_behind_what_it_holds() -> None:
    memory = empty(2, 6)
    first, second = random(2, 3, H, E), random(2, 2, H, E, seed=1)
    memory.write(1, first, -first)
    memory = memory.advance(3, torch.tensor([3, 1]))
    keys, values = memory.write(1, second, -second)  # (B, H, K, E)
    assert_close(keys[0], torch.cat([first[0], second[0]]).transpose(0, 1))
    assert_close(keys[1, :, :3], torch.cat([first[1, :1], second[1]]).transpose(0, 1))  # padding was overwritten
    assert_close(values, -keys)
    assert (memory.key[:, 0] == 0).all()  # the other layer
    assert memory.advance(2, None).length.tolist() == [5, 3]


def test_new_positions_see_what_is_before_them_and_themselves() -> None:
    memory = empty(2, 9).advance(3, torch.tensor([3, 1]))
    assert memory.slots(2).tolist() == [[3, 4], [1, 2]]
    assert memory.mask(2).long().tolist() == [
        [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]],
        [[[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]],
    ]


def test_padding_may_count_for_more_than_the_capacity() -> None:
    memory = empty(2, 4).advance(3, torch.tensor([3, 1])).advance(1, None)
    memory = memory.select(torch.tensor([1]))  # the long row is finished, the short one goes on to the end
    assert memory.mask(2).long().tolist() == [[[[1, 1, 1, 0], [1, 1, 1, 1]]]]
    keys, _ = memory.write(0, random(1, 2, H, E), random(1, 2, H, E))
    assert keys.size(2) == 4
    assert memory.advance(2, None).length.tolist() == [4]


@pytest.mark.parametrize("rows", [[1, 0], [0, 0, 1], [1]])
def test_selecting_and_joining_keep_what_was_written(rows: list[int]) -> None:
    memory, other = empty(2, 6), empty(1, 6)
    written = random(2, 3, H, E)
    memory.write(0, written, -written)
    taken = memory.advance(3, None).select(torch.tensor(rows))
    assert_close(taken.key[:, 0, :3], written[rows])
    assert_close(taken.value[:, 0, :3], -written[rows])
    assert (taken.key[:, :, 3:] == 0).all()  # masked slots meet a weight of zero, and 0 · NaN is NaN
    joined = other.advance(1, None).join(taken)
    assert joined.length.tolist() == [1] + [3] * len(rows)
    assert joined.mask(1).size(-1) == 4
    assert_close(joined.key[1:], taken.key)


@pytest.mark.parametrize("rows", [[0, 1, 2], [1, 1, 0], [2, 0, 1]])
def test_reordering_moves_in_place_what_selecting_would_copy(rows: list[int]) -> None:
    memory = empty(3, 6)
    written = random(3, 3, H, E)
    memory.write(1, written, -written)
    memory = memory.advance(3, torch.tensor([3, 2, 1]))
    expected = memory.select(torch.tensor(rows))
    place = memory.key.data_ptr()
    moved = memory.reorder(torch.tensor(rows))
    assert moved.key.data_ptr() == place
    assert_close(dict(moved.tensors()), dict(expected.tensors()))


def test_what_lies_in_padded_slots_is_never_attended() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(H * E, H).double()
    chunk, more = random(2, 3, H * E), random(2, 1, H * E, seed=1)
    count = torch.tensor([3, 1])
    answers = []
    for noise in (0.0, 100.0):
        memory = empty(2, 5, layers=1)
        padded = chunk.clone()
        padded[1, 1:] += noise
        attention(padded, memory.slots(3), memory, bias=hiding(memory.mask(3), chunk))
        memory = memory.advance(3, count)
        answers.append(attention(more, memory.slots(1), memory, bias=hiding(memory.mask(1), chunk)))
    assert_close(answers[0], answers[1])
