"""Truncated back-propagation through time: the stream as one contiguous slice per row, with state carried over."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.data.order import randint, uniform
from seqwright.data.text.stream import Stream, to_batch
from seqwright.data.text.streamed import StreamedIds

HALF_SHARE = 0.05
"""Share of steps of half the length, with random lengths."""
MIN_LENGTH = 5
"""Least random length, before scaling."""
LENGTHS = 5
"""Purpose of the random bits of lengths (`order.bit_generator`)."""


class BPTTRows:
    """A feed whose row b continues slice b of the stream, `context` positions per step, until the epoch ends.

    Each epoch rotates the stream, treated as a ring, by a random offset, so that slices and windows start elsewhere. A
    slice across the end of the ring continues from the last document to the first, as from any document to the next.

    With `jitter`, lengths are random (Merity et al. 2018): normal with this standard deviation around `context`, or
    around half of it in one step of twenty, and scaled so that an epoch has as many steps as without.
    """

    carried = True

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, shift: bool = True, jitter: float = 0.0):
        self.stream, self.context, self.seed, self.shift = stream, context, seed, shift
        rows = min(batch, stream.positions)
        boundaries = np.arange(rows + 1) * stream.positions // rows  # (B + 1,)
        self.starts, self.lengths = boundaries[:-1], np.diff(boundaries)  # (B,)
        self.longest = int(self.lengths.max())
        self.steps_per_epoch = -(-self.longest // context)
        self.jitter = jitter

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        shift = randint(self.seed, epoch, 0, self.stream.positions - 1) if self.shift else 0
        inside = self._span(epoch, number)  # (T,)
        if isinstance(self.stream.ids, StreamedIds):  # where each row reads now, and then the shard after it
            now = (shift + self.starts + int(inside[0])) % self.stream.positions
            further = (now + self.stream.ids.per_shard) % self.stream.positions
            self.stream.ids.fetch_ahead((int(at), int(at) + 1) for at in np.concatenate([now, further]))
        positions = (shift + self.starts[:, None] + inside) % self.stream.positions  # (B, T)
        return to_batch(*self.stream.gather(positions, inside < self.lengths[:, None]))

    def _span(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Positions of a step inside the slices."""
        if not self.jitter:
            return number * self.context + np.arange(self.context)
        ends = jittered_ends(self.seed, epoch, self.longest, self.steps_per_epoch, self.context, self.jitter)
        return np.arange(ends[number - 1] if number else 0, ends[number])


@functools.lru_cache(maxsize=2)
def jittered_ends(seed: int, epoch: int, positions: int, steps: int, context: int, jitter: float) -> NDArray[np.int64]:
    """(steps,): where each step of an epoch of random lengths ends; the last at `positions`."""
    halves, *normals = uniform(seed, epoch, LENGTHS, 3 * steps).reshape(3, steps)
    mean = np.where(halves < HALF_SHARE, context / 2, context)
    # Box-Muller: a function of raw bits, whose stream NumPy guarantees.
    normal = np.sqrt(-2 * np.log1p(-normals[0])) * np.cos(2 * np.pi * normals[1])
    lengths = np.maximum(mean + jitter * normal, min(MIN_LENGTH, context))
    ends = np.rint(lengths.cumsum() * (positions / lengths.sum())).astype(np.int64)
    # At least one position in each step, of texts that have hardly more positions than steps.
    ends = np.maximum(ends, np.arange(1, steps + 1))
    return np.minimum(ends, positions - np.arange(steps - 1, -1, -1))
