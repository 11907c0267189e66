"""Temporary arrays on disk: memory maps of unlinked files, whose resident pages can be dropped at any time.

The files are in the temporary directory (`TMPDIR`) and have no name, so that the system frees them however the process
ends, SIGKILL included.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from seqwright.core.config import UserError

_maps: list[weakref.ref[np.memmap[Any, Any]]] = []
"""Live memory maps."""


def mapped_array(size: int, dtype: DTypeLike) -> NDArray[Any]:
    """An uninitialized array in a temporary file; a full disk is a UserError."""
    folder = Path(tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                # Allocate now: a disk that fills up under a memory map raises SIGBUS instead of an exception.
                os.posix_fallocate(file.fileno(), 0, size * np.dtype(dtype).itemsize)
            array = np.memmap(file, dtype, "r+", shape=(size,))
    except OSError as error:
        raise UserError(
            f"no room for temporary files in {folder}: {error.strerror}, {shutil.disk_usage(folder).free / 1e9:,.1f} GB"
            " free. Free some space, or set TMPDIR to a folder on another disk."
        ) from None
    track(array)
    return array


def track(array: NDArray[Any]) -> None:
    """Registers an array, so that `release` drops its pages too if it is a memory map."""
    if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]  # a copy of a map has none
        _maps.append(weakref.ref(array))


def release() -> None:
    """Drops the pages of all memory maps from resident memory; their contents stay in the files."""
    live = [array for reference in _maps if (array := reference()) is not None]
    for array in live:
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    _maps[:] = [weakref.ref(array) for array in live]
