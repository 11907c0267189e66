"""Room for arrays that may not fit in memory: in memory while they do, else in nameless files worked on in blocks.

The files lie in the system's temporary folder (`TMPDIR`) and have no name there, so that whatever ends the process, a
kill included, frees them. With no limit on memory everything is one block and every function here is one numpy call.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from seqwright.core.storage import write_errors

Array = NDArray[Any]

BYTES_A_ROW = 320
"""What work on one n-gram takes at its peak, sorting included: measured."""
SMALLEST_BLOCK = 4096


class Scratch:
    """Arrays and blockwise work within a number of bytes, or without a limit."""

    def __init__(self, memory: int | None = None):
        self.block = None if memory is None else max(memory // BYTES_A_ROW, SMALLEST_BLOCK)
        self._maps: list[weakref.ref[np.memmap[Any, Any]]] = []

    def empty(self, size: int, dtype: DTypeLike) -> Array:
        """An array to fill."""
        if self.block is None or size == 0:
            return np.empty(size, dtype)
        folder = Path(tempfile.gettempdir())
        with write_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # Room is taken now: a disk that fills up under a map kills the process instead of raising.
                os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
            array = np.memmap(file, dtype, "r+", shape=(size,))
        self._maps.append(weakref.ref(array))
        return array

    def keep(self, array: Array) -> Array:
        """The array, out of the way until it is needed again."""
        if self.block is None:
            return array
        kept = self.empty(len(array), array.dtype)
        kept[:] = array
        return kept

    def watch(self, array: Array) -> None:
        """Lets go of a mapped array of someone else's as of our own."""
        if isinstance(array, np.memmap):
            self._maps.append(weakref.ref(array))

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive slices that cover `size` rows; after each, what was mapped for it is let go."""
        step = self.block or max(size, 1)
        for start in range(0, max(size, 1), step):
            yield slice(start, min(start + step, size))
            self.release()

    def map(self, function: Callable[..., Array], *arrays: Array, dtype: DTypeLike) -> Array:
        """An elementwise function of arrays of one length."""
        size = len(arrays[0])
        result = self.empty(size, dtype)
        for block in self.blocks(size):
            result[block] = function(*(array[block] for array in arrays))
        return result

    def take(self, array: Array, index: Array) -> Array:
        """array[index] for a block of indices in any order: a long array is read once through instead of at random."""
        if self.block is None:
            return np.asarray(array[index])
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        taken = np.empty(len(index), array.dtype)
        for block in self.blocks(len(array)):
            low, high = np.searchsorted(ordered, [block.start, block.stop])
            taken[order[low:high]] = array[ordered[low:high]]
        return taken

    def tally(self, index: Array, counted: Array, size: int) -> NDArray[np.int64]:
        """How often each of `size` rows is pointed at by the `index` of what is counted."""
        if self.block is None:
            return np.bincount(index[counted > 0], minlength=size)
        total = self.empty(size, np.int64)  # a new file is all zeros
        for block in self.blocks(len(index)):
            rows, times = np.unique(index[block][counted[block] > 0], return_counts=True)
            for part in self.blocks(size):
                low, high = np.searchsorted(rows, [part.start, part.stop])
                total[rows[low:high]] += times[low:high]
        return total

    def release(self) -> None:
        """Lets go of mapped pages: they stay in their file, and no longer count as ours."""
        maps = [array for reference in self._maps if (array := reference()) is not None]
        for array in maps:
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        self._maps = [weakref.ref(array) for array in maps]
