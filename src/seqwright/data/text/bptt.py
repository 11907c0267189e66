"""Contiguous rows: the stream cut into as many slices as a batch has rows, read side by side with state carried on."""

from __future__ import annotations

import numpy as np

from seqwright.core.batch import Batch
from seqwright.data.order import draw
from seqwright.data.text.stream import Stream, to_batch


class Rows:
    """Row b of every batch reads on in slice b, `context` positions at a time, until the epoch ends.

    Each epoch cuts the stream, taken as a ring, at another place, so that slices and windows begin elsewhere. A slice
    over the seam goes on from the last document to the first, as it would from any document to the next.
    """

    carried = True

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, shift: bool = True):
        self.stream, self.context, self.seed, self.shift = stream, context, seed, shift
        rows = min(batch, stream.positions)
        borders = np.arange(rows + 1) * stream.positions // rows  # (B + 1,)
        self.starts, self.lengths = borders[:-1], np.diff(borders)  # (B,)
        self.steps_per_epoch = -(-int(self.lengths.max()) // context)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        shift = draw(self.seed, epoch, 0, self.stream.positions - 1) if self.shift else 0
        inside = number * self.context + np.arange(self.context)  # (T,)
        positions = (shift + self.starts[:, None] + inside) % self.stream.positions  # (B, T)
        return to_batch(*self.stream.gather(positions, inside < self.lengths[:, None]))
