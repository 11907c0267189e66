"""Shuffling and sampling as pure functions of (seed, epoch or step): no RNG state to checkpoint, none to replay.

Only the raw output of the bit generator is used: NumPy guarantees the stream of PCG64, but not that of `shuffle`.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=16)
def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """A permutation of 0 … count - 1 for this epoch. The array is cached and read-only."""
    # Sorting random keys, rather than Generator.permutation, whose algorithm may change between NumPy versions.
    order = np.argsort(bit_generator(seed, epoch, 0).random_raw(count), kind="stable")
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
