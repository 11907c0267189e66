"""Shuffling and sampling as pure functions of (seed, epoch or step): no RNG state to checkpoint, none to replay.

Only the raw output of the bit generator is used: NumPy guarantees the stream of PCG64, but not that of `shuffle`.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

WITHIN_BLOCK = 9
"""Purpose of the random bits that shuffle a block. Nothing else may take it: SeedSequence pads with zeros, so that the
bits of block 0 are those of `bit_generator` for this purpose."""


@functools.lru_cache(maxsize=16)
def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """A permutation of 0 … count - 1 for this epoch. The array is cached and read-only."""
    # Sorting random keys, rather than Generator.permutation, whose algorithm may change between NumPy versions.
    order = np.argsort(bit_generator(seed, epoch, 0).random_raw(count), kind="stable")
    order.setflags(write=False)
    return order


def shuffled_blocks(seed: int, epoch: int, count: int, block: int, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items at these indices of an order of 0 … count - 1 for this epoch: blocks of `block` consecutive items in
    random order, and the items of each in random order."""
    if block >= count:
        return permutation(seed, epoch, count)[indices]
    order, ends = _block_order(seed, epoch, count, block)
    slots = np.searchsorted(ends, indices, side="right")
    items = np.empty_like(indices)
    for slot in np.unique(slots).tolist():
        here, first = slots == slot, order[slot] * block
        within = _within_block(seed, epoch, int(order[slot]), min(block, count - int(first)))
        items[here] = first + within[indices[here] - (ends[slot] - len(within))]
    return items


def next_blocks(seed: int, epoch: int, count: int, block: int, index: int) -> list[tuple[int, int]]:
    """First item, and the one past the last, of the block that an index is in, and of the block after it, by the order
    of `shuffled_blocks`."""
    order, ends = _block_order(seed, epoch, count, block)
    slot = int(np.searchsorted(ends, index, side="right"))
    following = order[slot + 1] if slot + 1 < len(order) else _block_order(seed, epoch + 1, count, block)[0][0]
    return [(int(number) * block, min(count, (int(number) + 1) * block)) for number in (order[slot], following)]


@functools.lru_cache(maxsize=16)
def _block_order(seed: int, epoch: int, count: int, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The blocks in their order, and where each ends in it. The arrays are cached and read-only."""
    order = permutation(seed, epoch, -(-count // block))
    ends = np.minimum(block, count - order * block).cumsum()
    ends.setflags(write=False)
    return order, ends


@functools.lru_cache(maxsize=16)
def _within_block(seed: int, epoch: int, number: int, count: int) -> NDArray[np.int64]:
    """A permutation of the items of a block. The array is cached and read-only."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch, WITHIN_BLOCK, number]))
    order = np.argsort(bits.random_raw(count), kind="stable")
    order.setflags(write=False)
    return order


def randint(seed: int, epoch: int, low: int, high: int) -> int:
    """A random integer from low to high, both inclusive."""
    return low + int(bit_generator(seed, epoch, 1).random_raw()) % (high - low + 1)


def uniform(seed: int, step: int, purpose: int, count: int) -> NDArray[np.float64]:
    """`count` uniform numbers in [0, 1) for a step; another `purpose` (2 or more) gives an independent stream."""
    # The upper 53 bits, the precision of a double, as NumPy's own random() takes them.
    return (bit_generator(seed, step, purpose).random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def bit_generator(seed: int, epoch: int, purpose: int) -> np.random.PCG64:
    """A PCG64 for (seed, epoch or step, purpose); purposes 0 and 1 are taken by `permutation` and `randint`."""
    return np.random.PCG64(np.random.SeedSequence([seed, epoch, purpose]))
