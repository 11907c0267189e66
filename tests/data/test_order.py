"""Orders of blocks: permutations with random access, whose cached arrays no caller can change."""

from __future__ import annotations

import numpy as np
import pytest

from seqwright.data import order


@pytest.mark.parametrize("block", [1, 3, 7, 20])
def test_blocks_are_read_one_after_another(block: int) -> None:
    """Each item once an epoch; the first item of a block, and the one past its last, are those that are read next."""
    items = order.shuffled_blocks(1, 2, 20, block, np.arange(20))
    assert sorted(items.tolist()) == list(range(20))
    for index in range(20):
        [(first, end), _] = order.next_blocks(1, 2, 20, block, index)
        assert first <= items[index] < end
        assert end - first == block or end == 20


def test_cached_orders_are_read_only() -> None:
    arrays = [order.permutation(1, 0, 9), *order._block_order(1, 0, 9, 4), order._within_block(1, 0, 0, 4)]
    assert not any(array.flags.writeable for array in arrays)


def test_the_bits_of_a_purpose_are_those_of_block_0() -> None:
    """Why the purpose WITHIN_BLOCK is reserved."""
    block = np.argsort(order.bit_generator(1, 0, order.WITHIN_BLOCK).random_raw(50), kind="stable")
    assert block.tolist() == order._within_block(1, 0, 0, 50).tolist()
