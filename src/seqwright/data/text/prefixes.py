"""Documents one by one: each prefix with its successor (the lectures' ways 1 and 2), or all positions (way 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch
from seqwright.data.order import permutation
from seqwright.data.text.stream import Stream, to_batch


class Prefixes:
    """Each prefix of each document is one example, right-padded to `context`, with one target: at its last real id."""

    carried = False

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, curriculum: bool = False):
        self.stream, self.context, self.rows, self.seed, self.curriculum = stream, context, batch, seed, curriculum
        self.last = np.flatnonzero(stream.ids[1:] != stream.sos)  # (examples,) the last id of each prefix
        begins = document_starts(stream)
        begin = begins[np.searchsorted(begins, self.last, side="right") - 1]
        self.first = np.maximum(begin, self.last + 1 - context)
        self.cut = int(np.count_nonzero(self.first > begin))
        """Prefixes longer than the context, of which the last `context` ids are kept."""
        self.steps_per_epoch = -(-len(self.last) // batch)

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        said = f"{self.cut:,} prefixes are longer than {self.context} tokens; the last {self.context} of each are read."
        return [said] if self.cut else []

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
    """Each document is one example, `<sos> …` to `… <eos>`, right-padded to the longest of its batch.

    A document longer than `context` becomes several examples, one after the other.
    """

    carried = False

    def __init__(self, stream: Stream, *, context: int, batch: int, seed: int, curriculum: bool = False):
        self.stream, self.context, self.rows, self.seed, self.curriculum = stream, context, batch, seed, curriculum
        begins = document_starts(stream)
        # The last id of a document is predicted and not read: where another document follows, its successor is <sos>.
        lengths = np.diff(begins, append=len(stream.ids)) - 1
        pieces = -(-lengths // context)
        self.cut = int(np.count_nonzero(pieces > 1))
        """Documents longer than the context, read in pieces."""
        number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # 0, 1, … in each document
        self.first = np.repeat(begins, pieces) + number * context  # (examples,)
        self.lengths = np.minimum(np.repeat(lengths, pieces) - number * context, context)
        self.steps_per_epoch = -(-len(self.first) // batch)

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers should know."""
        said = f"{self.cut:,} documents are longer than {self.context} tokens and are read in pieces of so many."
        return [said] if self.cut else []

    def batch(self, step: int) -> Batch:
        epoch, number = divmod(step, self.steps_per_epoch)
        order = permutation(self.seed, epoch, len(self.first))
        if self.curriculum and epoch == 0:
            order = shortest_first(order, self.lengths)
        chosen = order[number * self.rows : (number + 1) * self.rows]
        lengths = self.lengths[chosen, None]  # (B, 1)
        inside = np.arange(lengths.max())  # (T,)
        return to_batch(*self.stream.gather(self.first[chosen, None] + inside, inside < lengths))


def document_starts(stream: Stream) -> NDArray[np.int64]:
    """Where each document's `<sos>` stands."""
    return np.flatnonzero(stream.ids == stream.sos)


def shortest_first(order: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same examples from short to long (Bengio et al. 2009); those of one length stay in their order."""
    return order[np.argsort(lengths[order], kind="stable")]
