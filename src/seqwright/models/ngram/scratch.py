"""Blockwise operations on arrays that may be larger than memory: in memory, or in temporary files (`core/mapped.py`).

Without a memory limit everything is one block and every function here is one numpy call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from seqwright.core.mapped import mapped_array, release

Array = NDArray[Any]

BYTES_PER_ROW = 320
"""Peak memory per n-gram of a block, sorting included: measured."""
MIN_BLOCK = 4096
"""Smallest block, in n-grams."""


class Scratch:
    """Allocation and blockwise operations within `memory` bytes, or without a limit."""

    def __init__(self, memory: int | None = None):
        self.block = None if memory is None else max(memory // BYTES_PER_ROW, MIN_BLOCK)

    def empty(self, size: int, dtype: DTypeLike) -> Array:
        """An uninitialized array, in a file where memory is limited."""
        return np.empty(size, dtype) if self.block is None or size == 0 else mapped_array(size, dtype)

    def spill(self, array: Array) -> Array:
        """The array, copied to disk where memory is limited."""
        if self.block is None:
            return array
        spilled = self.empty(len(array), array.dtype)
        spilled[:] = array
        return spilled

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive slices that cover `size` rows; after each, mapped pages are released."""
        step = self.block or max(size, 1)
        for start in range(0, max(size, 1), step):
            yield slice(start, min(start + step, size))
            release()

    def map(self, function: Callable[..., Array], *arrays: Array, dtype: DTypeLike) -> Array:
        """Applies an elementwise function to arrays of the same length, block by block."""
        size = len(arrays[0])
        result = self.empty(size, dtype)
        for block in self.blocks(size):
            result[block] = function(*(array[block] for array in arrays))
        return result

    def take(self, array: Array, index: Array) -> Array:
        """array[index] for indices in any order: a mapped array is read sequentially instead of at random."""
        if self.block is None:
            return np.asarray(array[index])
        ordered, order = sort_with_index(index)
        taken = np.empty(len(index), array.dtype)
        for block in self.blocks(len(array)):
            low, high = np.searchsorted(ordered, [block.start, block.stop])
            taken[order[low:high]] = array[ordered[low:high]]
        return taken

    def bincount(self, index: Array, counts: Array, size: int) -> NDArray[np.int64]:
        """np.bincount of the entries of `index` whose count is positive, over `size` bins."""
        if self.block is None:
            return np.bincount(index[counts > 0], minlength=size)
        total = self.empty(size, np.int64)  # a new file is zero-filled
        for block in self.blocks(len(index)):
            rows, times = np.unique(index[block][counts[block] > 0], return_counts=True)
            for part in self.blocks(size):
                low, high = np.searchsorted(rows, [part.start, part.stop])
                total[rows[low:high]] += times[low:high]
        return total


def sort_with_index(values: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The values in ascending order, and the index of each in `values`."""
    bits = len(values).bit_length()
    if not len(values) or values.min() < 0 or int(values.max()).bit_length() + bits > 64:
        ordered, index = torch.sort(torch.from_numpy(values.astype(np.int64, copy=False)))
        return ordered.numpy(), index.numpy()
    # The index in the low bits of the value: plain integers sort in a third of the time of an argsort.
    packed = values.astype(np.uint64)
    packed <<= np.uint64(bits)
    packed |= np.arange(len(values), dtype=np.uint64)
    packed.sort()
    return (packed >> np.uint64(bits)).view(np.int64), (packed & np.uint64((1 << bits) - 1)).view(np.int64)


def differs_from_previous(values: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Whether each value differs from the one before it; True for the first."""
    differs = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs
