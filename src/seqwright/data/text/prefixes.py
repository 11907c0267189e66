"""Unpacked documents: one example per prefix and next token (the lectures' ways 1 and 2), or per document (way 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch
from seqwright.data.order import permutation
from seqwright.data.text.stream import Stream, to_batch


class Prefixes:
    """A feed of document prefixes, right-padded to `context`, with one target each: the token after the prefix."""

    carried = False

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, curriculum: bool = False):
        self.stream, self.context, self.rows, self.seed, self.curriculum = stream, context, batch, seed, curriculum
        self.last = np.flatnonzero(stream.ids[1:] != stream.sos)  # (examples,) position of the last id of each prefix
        starts = stream.starts
        begin = starts[np.searchsorted(starts, self.last, side="right") - 1]
        self.first = np.maximum(begin, self.last + 1 - context)
        self.cut = int(np.count_nonzero(self.first > begin))
        """Prefixes longer than the context, truncated to their last `context` ids."""
        self.steps_per_epoch = -(-len(self.last) // batch)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about truncation."""
        note = f"{self.cut:,} prefixes are longer than {self.context} tokens and keep their last {self.context}."
        return [note] if self.cut else []

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        order = permutation(self.seed, epoch, len(self.last))
        if self.curriculum and epoch == 0:
            order = shortest_first(order, self.last - self.first)
        chosen = order[number * self.rows : (number + 1) * self.rows]
        first, last = self.first[chosen, None], self.last[chosen, None]  # (B, 1)
        positions = first + np.arange(self.context)  # (B, T)
        input, target = self.stream.gather(positions, positions <= last)
        return to_batch(input, np.where(positions == last, target, IGNORE))


class Documents:
    """A feed of documents, `<sos> …` to `… <eos>`, right-padded to the longest of the batch.

    A document longer than `context` is split into consecutive chunks.
    """

    carried = False

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, curriculum: bool = False):
        self.stream, self.context, self.rows, self.seed, self.curriculum = stream, context, batch, seed, curriculum
        starts = stream.starts
        # The last id of a document is a target and never an input: its successor is the <sos> of the next document.
        lengths = np.diff(starts, append=len(stream.ids)) - 1
        chunks = -(-lengths // context)
        self.cut = int(np.count_nonzero(chunks > 1))
        """Documents longer than the context, split into chunks."""
        number = np.arange(chunks.sum()) - np.repeat(np.cumsum(chunks) - chunks, chunks)  # 0, 1, … in each document
        self.first = np.repeat(starts, chunks) + number * context  # (examples,)
        self.lengths = np.minimum(np.repeat(lengths, chunks) - number * context, context)
        self.steps_per_epoch = -(-len(self.first) // batch)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about chunking."""
        note = f"{self.cut:,} documents are longer than {self.context} tokens and are split into chunks of that length."
        return [note] if self.cut else []

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        order = permutation(self.seed, epoch, len(self.first))
        if self.curriculum and epoch == 0:
            order = shortest_first(order, self.lengths)
        chosen = order[number * self.rows : (number + 1) * self.rows]
        lengths = self.lengths[chosen, None]  # (B, 1)
        inside = np.arange(lengths.max())  # (T,)
        return to_batch(*self.stream.gather(self.first[chosen, None] + inside, inside < lengths))


def shortest_first(order: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The examples sorted by length, a curriculum (Bengio et al. 2009); the sort is stable."""
    return order[np.argsort(lengths[order], kind="stable")]
