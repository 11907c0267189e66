"""Truncated back-propagation through time: the stream as one contiguous slice per row, with state carried over."""

from __future__ import annotations

import numpy as np

from seqwright.core.batch import Batch
from seqwright.data.order import randint
from seqwright.data.text.stream import Stream, to_batch


class BPTTRows:
    """A feed whose row b continues slice b of the stream, `context` positions per step, until the epoch ends.

    Each epoch rotates the stream, treated as a ring, by a random offset, so that slices and windows start elsewhere. A
    slice across the end of the ring continues from the last document to the first, as from any document to the next.
    """

    carried = True

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, shift: bool = True):
        self.stream, self.context, self.seed, self.shift = stream, context, seed, shift
        rows = min(batch, stream.positions)
        boundaries = np.arange(rows + 1) * stream.positions // rows  # (B + 1,)
        self.starts, self.lengths = boundaries[:-1], np.diff(boundaries)  # (B,)
        self.steps_per_epoch = -(-int(self.lengths.max()) // context)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        shift = randint(self.seed, epoch, 0, self.stream.positions - 1) if self.shift else 0
        inside = number * self.context + np.arange(self.context)  # (T,)
        positions = (shift + self.starts[:, None] + inside) % self.stream.positions  # (B, T)
        return to_batch(*self.stream.gather(positions, inside < self.lengths[:, None]))
