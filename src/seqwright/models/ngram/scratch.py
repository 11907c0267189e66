"""Out-of-core arrays: in memory, or memory-mapped temporary files processed in blocks where memory is limited.

The files are unlinked files in the temporary directory (`TMPDIR`), so that the system frees them however the process
ends, SIGKILL included. Without a memory limit everything is one block and every function here is one numpy call.
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

BYTES_PER_ROW = 320
"""Peak memory per n-gram of a block, sorting included: measured."""
MIN_BLOCK = 4096
"""Smallest block, in n-grams."""


class Scratch:
    """Allocation and blockwise operations within `memory` bytes, or without a limit."""

    def __init__(self, memory: int | None = None):
        self.block = None if memory is None else max(memory // BYTES_PER_ROW, MIN_BLOCK)
        self._maps: list[weakref.ref[np.memmap[Any, Any]]] = []

    def empty(self, size: int, dtype: DTypeLike) -> Array:
        """An uninitialized array, memory-mapped where memory is limited."""
        if self.block is None or size == 0:
            return np.empty(size, dtype)
        folder = Path(tempfile.gettempdir())
        with write_errors(folder), tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # Allocate now: a disk that fills up under a memory map raises SIGBUS instead of an exception.
                os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
            array = np.memmap(file, dtype, "r+", shape=(size,))
        self._maps.append(weakref.ref(array))
        return array

    def spill(self, array: Array) -> Array:
        """The array, copied to disk where memory is limited."""
        if self.block is None:
            return array
        spilled = self.empty(len(array), array.dtype)
        spilled[:] = array
        return spilled

    def track(self, array: Array) -> None:
        """Registers a memory map of the caller, so that `release` drops its pages too."""
        if isinstance(array, np.memmap):
            self._maps.append(weakref.ref(array))

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive slices that cover `size` rows; after each, mapped pages are released."""
        step = self.block or max(size, 1)
        for start in range(0, max(size, 1), step):
            yield slice(start, min(start + step, size))
            self.release()

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
        order = np.argsort(index, kind="stable")
        ordered = index[order]
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

    def release(self) -> None:
        """Drops mapped pages from resident memory; their contents stay in the file."""
        maps = [array for reference in self._maps if (array := reference()) is not None]
        for array in maps:
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        self._maps = [weakref.ref(array) for array in maps]
