"""A corpus as one stream of ids, every document framed by `<sos>` and `<eos>`.

Lines and paragraphs are *ended* by `<eos>`. Files are *separated* by it: a lone file, or a piece cut from one, goes on
where we stop reading, so n characters are exactly n predictions. `<sos>` is given and never predicted.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.batch import IGNORE, Batch
from seqwright.config import UserError
from seqwright.data.text import Corpus
from seqwright.text.lookup import Ids
from seqwright.text.tokenizer import Tokenizer

PART = 1 << 20
"""Ids looked at together."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    ids: Ids = field(repr=False)
    """(N,) framed; id p + 1 is predicted at position p, unless it is `<sos>`."""
    sos: int
    pad: int
    documents: int
    characters: int
    bytes: int
    unknown: int
    """Ids that are <unk>."""
    exact: bool
    """The ids determine the text, so that bits per character and per byte mean something."""

    @property
    def positions(self) -> int:
        """Places at which a next id exists, `<sos>` included."""
        return len(self.ids) - 1

    @functools.cached_property
    def targets(self) -> int:
        """Ids that are predicted: all but `<sos>`."""
        return len(self.ids) - sum(int(np.count_nonzero(part == self.sos)) for part in self._parts())

    def first(self, tokens: int) -> Stream:
        """The beginning of the stream, with its share of the text's characters and bytes."""
        share = min(1.0, tokens / self.positions)
        if share == 1:
            return self
        characters, size = round(self.characters * share), round(self.bytes * share)
        return replace(self, ids=self.ids[: tokens + 1], characters=characters, bytes=size)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids: a resumed run must find the corpus it left."""
        found = hashlib.sha256()
        for part in self._parts():
            found.update(part.astype("<u4").tobytes())
        return found.hexdigest()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each document, `<sos>` not counted."""
        starts = [np.flatnonzero(part == self.sos) + place * PART for place, part in enumerate(self._parts())]
        borders = np.concatenate([*starts, [len(self.ids)]])
        return borders[1:] - borders[:-1] - 1

    def _parts(self) -> Iterator[Ids]:
        """The ids a few at a time: they may lie on disk, and be more than memory holds."""
        return (self.ids[start : start + PART] for start in range(0, len(self.ids), PART))

    def gather(self, positions: NDArray[np.int64], real: NDArray[np.bool_]) -> tuple[Ids, NDArray[np.int64]]:
        """Input and target at positions (B, T); padding and IGNORE where they are not real."""
        inside = np.where(real, positions, 0)
        input = np.where(real, self.ids[inside], self.pad)
        following = self.ids[inside + 1].astype(np.int64)
        return input, np.where(real & (following != self.sos), following, IGNORE)


def make_stream(corpus: Corpus, tokenizer: Tokenizer) -> Stream:
    """The stream of a corpus."""
    if tokenizer.sos is None:
        raise UserError("a stream begins its documents with <sos>; add it to tokenizer.specials.")
    encoded = tokenizer.encode_all(corpus.documents)
    if not len(encoded.ids) and (corpus.kind == "file" or tokenizer.eos is None):
        raise UserError("the text has no tokens, so there is nothing to predict; give more text.")
    return Stream(
        ids=frame(encoded.ids, encoded.lengths, tokenizer, ended=corpus.kind != "file"),
        sos=tokenizer.sos,
        # Padding is never attended nor predicted, so without <pad> any id will do.
        pad=tokenizer.sos if tokenizer.pad is None else tokenizer.pad,
        documents=len(corpus.documents),
        characters=corpus.characters,
        bytes=corpus.bytes,
        unknown=encoded.unknown,
        exact=encoded.exact,
    )


def to_batch(input: NDArray[np.integer], target: NDArray[np.int64]) -> Batch:
    return Batch.of_text(torch.from_numpy(input.astype(np.int64)), torch.from_numpy(target))


def frame(ids: Ids, lengths: list[int], tokenizer: Tokenizer, *, ended: bool) -> Ids:
    """`<sos>` before each document and `<eos>` after it, placed without a loop over documents."""
    closed = 0 if tokenizer.eos is None else len(lengths) if ended else len(lengths) - 1
    widths = np.array(lengths, np.int64) + 1
    widths[:closed] += 1
    ends = np.cumsum(widths)
    framed = np.full(ends[-1], tokenizer.sos, ids.dtype)
    inner = np.ones(len(framed), bool)
    inner[ends - widths] = False
    if tokenizer.eos is not None:
        framed[ends[:closed] - 1] = tokenizer.eos
        inner[ends[:closed] - 1] = False
    framed[inner] = ids
    return framed
