"""Packed windows: the stream cut into stretches of one length, every target once an epoch, in an order of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.core.protocols import Feed
from seqwright.data.order import draw, permutation
from seqwright.data.text.stream import Stream, to_batch


class Windows:
    """Batches of `context` positions that begin anywhere in the text, document borders inside them or not.

    The grid of windows moves a little each epoch, so that the ids that begin a window (and are predicted with hardly
    any context) are others each time. The first and the last window are then shorter, and padded; the number of windows
    stays the same.
    """

    carried = False

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, shift: bool = True):
        self.stream, self.context, self.rows, self.seed = stream, context, batch, seed
        self.windows, self.shifts = (
            grid(stream.positions, context) if shift else (-(-stream.positions // context), (0, 0))
        )
        self.steps_per_epoch = -(-self.windows // batch)

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        places = np.arange(number * self.rows, min((number + 1) * self.rows, self.windows))
        return to_batch(*self.read(epoch * self.windows + places))

    def read(self, places: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Input and target (B, T) of windows by their places in the order of all epochs, one after the other."""
        parts = [
            self._read(int(epoch), places[places // self.windows == epoch] % self.windows)
            for epoch in np.unique(places // self.windows)
        ]
        return np.concatenate([input for input, _ in parts]), np.concatenate([target for _, target in parts])

    def _read(self, epoch: int, places: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        chosen = permutation(self.seed, epoch, self.windows)[places]  # (B,)
        begin = chosen * self.context - draw(self.seed, epoch, *self.shifts)
        end = np.minimum(begin + self.context, self.stream.positions)
        positions = np.maximum(begin, 0)[:, None] + np.arange(self.context)  # (B, T)
        return self.stream.gather(positions, positions < end[:, None])


class Apart:
    """Packed windows whose tokens see their own document only: a row of several is each of them alone."""

    carried = False

    def __init__(self, feed: Feed, sos: int):
        self.feed, self.sos = feed, sos
        self.steps_per_epoch = feed.steps_per_epoch

    def batch(self, step: int) -> Batch:
        return self.feed.batch(step).with_documents(self.sos)


def grid(positions: int, context: int) -> tuple[int, tuple[int, int]]:
    """The number of windows, and the least and greatest shift at which that many cover everything and none is empty."""
    windows = -(-positions // context)
    slack = windows * context - positions
    if windows == 1 or slack >= context // 2:
        return windows, (0, 0 if windows == 1 else slack)
    return windows + 1, (slack + 1, context - 1)
