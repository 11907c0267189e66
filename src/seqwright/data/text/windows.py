"""Packed windows: the stream in windows of fixed length, shuffled each epoch; each token is a target once per epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Batch
from seqwright.core.protocols import Feed
from seqwright.data.order import next_blocks, randint, shuffled_blocks
from seqwright.data.text.stream import Stream, to_batch
from seqwright.data.text.streamed import StreamedIds


class Windows:
    """A feed of windows of `context` positions, packed across document boundaries.

    The grid of windows is shifted each epoch, so that the tokens at the start of a window, which are predicted with
    little context, differ from epoch to epoch. The first and the last window are then shorter and padded; the number of
    windows stays the same.

    With `block`, windows are shuffled within blocks of so many consecutive tokens, and the blocks among themselves:
    steps then read few shards of a stream at a time, and the next ones are fetched ahead (decision 211).
    """

    carried = False

    def __init__(
        self,
        stream: Stream,
        *,
        context: int,
        batch: int,
        seed: int,
        shift: bool = True,
        block: int | None = None,
    ):
        self.stream, self.context, self.rows, self.seed = stream, context, batch, seed
        self.windows, self.shifts = (
            grid(stream.positions, context) if shift else (-(-stream.positions // context), (0, 0))
        )
        self.steps_per_epoch = -(-self.windows // batch)
        self.block = self.windows if block is None else min(self.windows, max(1, block // context))  # in windows

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        indices = np.arange(number * self.rows, min((number + 1) * self.rows, self.windows))
        return to_batch(*self.read(epoch * self.windows + indices))

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        """Input and target (B, T) of windows, by their index in the concatenated orders of all epochs."""
        parts = [
            self._read(int(epoch), indices[indices // self.windows == epoch] % self.windows)
            for epoch in np.unique(indices // self.windows)
        ]
        return np.concatenate([input for input, _ in parts]), np.concatenate([target for _, target in parts])

    def _read(self, epoch: int, indices: NDArray[np.int64]) -> tuple[NDArray[np.integer], NDArray[np.int64]]:
        chosen = shuffled_blocks(self.seed, epoch, self.windows, self.block, indices)  # (B,)
        shift = randint(self.seed, epoch, *self.shifts)
        if isinstance(self.stream.ids, StreamedIds):
            blocks = next_blocks(self.seed, epoch, self.windows, self.block, int(indices.min()))
            spans = [(np.array(block) * self.context - shift).tolist() for block in blocks]
            self.stream.ids.fetch_ahead((start, end + 1) for start, end in spans)
        begin = chosen * self.context - shift
        end = np.minimum(begin + self.context, self.stream.positions)
        positions = np.maximum(begin, 0)[:, None] + np.arange(self.context)  # (B, T)
        return self.stream.gather(positions, positions < end[:, None])


class DocumentMasking:
    """A feed of packed windows with a document mask: tokens attend within their own document only (decision 65)."""

    carried = False

    def __init__(self, feed: Feed, sos: int):
        self.feed, self.sos = feed, sos
        self.steps_per_epoch = feed.steps_per_epoch

    def batch(self, step: int) -> Batch:
        return self.feed.batch(step).with_documents(self.sos)


def grid(positions: int, context: int) -> tuple[int, tuple[int, int]]:
    """The number of windows, and the range of shifts for which that many windows cover the stream and none is empty."""
    windows = -(-positions // context)
    slack = windows * context - positions
    # With little slack one more window is taken, so that the range of shifts is at least half a window.
    if windows == 1 or slack >= context // 2:
        return windows, (0, 0 if windows == 1 else slack)
    return windows + 1, (slack + 1, context - 1)
