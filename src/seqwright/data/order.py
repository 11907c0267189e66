"""The order of training data as a function of (seed, epoch): nothing to store, nothing to replay.

Only the raw bits of the generator are used: NumPy promises those forever, but not its `shuffle`.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=16)
def permutation(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """0 … count - 1 in the order of this epoch; the same array for the same question, so do not write to it."""
    order = np.argsort(bits(seed, epoch, 0).random_raw(count), kind="stable")
    order.setflags(write=False)
    return order


def draw(seed: int, epoch: int, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return low + int(bits(seed, epoch, 1).random_raw()) % (high - low + 1)


def uniform(seed: int, step: int, purpose: int, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) that a step draws; `purpose` (2 or more) keeps those of different questions apart."""
    return (bits(seed, step, purpose).random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def bits(seed: int, epoch: int, purpose: int) -> np.random.PCG64:
    """Where all randomness of an epoch comes from, by purpose: 0 and 1 are the orders of this file."""
    return np.random.PCG64(np.random.SeedSequence([seed, epoch, purpose]))
