"""A corpus as one stream of ids, every document framed by `<sos>` and `<eos>`.

Lines and paragraphs are *ended* by `<eos>`. Files are *separated* by it: a lone file, or a piece cut from one, goes on
where we stop reading, so n characters are exactly n predictions. `<sos>` is given and never predicted.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.data.text.corpus import END, Corpus, Document
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
    unknown: int
    """Ids that are <unk>."""
    lossy: str | None = None
    """Why the ids do not determine the text; None where they do, so that bits per byte and character mean something."""
    surfaces: NDArray[np.int64] = field(repr=False)
    """(V, 3): bytes and characters that each id stands for, `<eos>` for the end of a document, and how many of them are
    not in the text where the id begins a document: some tokenizers put a space first."""
    unended: Mapping[int, int] = field(default_factory=dict, repr=False)
    """Places of `<eos>` where the text has not the whole end of a document, and how many characters it lacks."""

    @property
    def positions(self) -> int:
        """Places at which a next id exists, `<sos>` included."""
        return len(self.ids) - 1

    @functools.cached_property
    def targets(self) -> int:
        """Ids that are predicted: all but `<sos>`."""
        return len(self.ids) - sum(int(np.count_nonzero(part == self.sos)) for part in self._parts())

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(positions, 2): bytes and characters that the id after each position stands for.

        Where nothing is lost they add up to the text, so any stretch of it has its own bits per byte.
        """
        following = self.ids[1:]
        sizes = self.surfaces[following, :2]
        begins = np.flatnonzero(self.ids[:-1] == self.sos)
        sizes[begins] -= self.surfaces[following[begins], 2:]
        for place, lacking in self.unended.items():
            if place < len(self.ids):
                sizes[place - 1] -= lacking
        return sizes

    def first(self, tokens: int) -> Stream:
        """The beginning of the stream: so many positions, or all there are."""
        return replace(self, ids=self.ids[: tokens + 1])

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
        raise UserError("a stream begins its documents with <sos>; add it to tokenizer.special_tokens.")
    encoded = tokenizer.encode_batch(corpus.documents)
    if not corpus.documents or (not len(encoded.ids) and (corpus.kind == "file" or tokenizer.eos is None)):
        raise UserError("the text has no tokens, so there is nothing to predict; give more text.")
    ids = frame(encoded.ids, encoded.lengths, tokenizer, ended=corpus.kind != "file")
    starts = np.append(np.flatnonzero(ids == tokenizer.sos), len(ids))
    return Stream(
        ids=ids,
        sos=tokenizer.sos,
        # Padding is never attended nor predicted, so without <pad> any id will do.
        pad=tokenizer.sos if tokenizer.pad is None else tokenizer.pad,
        documents=len(corpus.documents),
        unknown=encoded.unknown,
        lossy=lossy(corpus.kind, tokenizer, unknown=encoded.unknown, exact=encoded.exact, whole=corpus.exact),
        surfaces=surfaces(corpus.kind, tokenizer),
        unended={int(starts[document + 1]) - 1: lacking for document, lacking in corpus.unended.items()},
    )


def to_batch(input: NDArray[np.integer], target: NDArray[np.int64]) -> Batch:
    return Batch.of_text(torch.from_numpy(input.astype(np.int64)), torch.from_numpy(target))


def lossy(document: Document, tokenizer: Tokenizer, *, unknown: int, exact: bool, whole: bool) -> str | None:
    """Why ids do not determine their text, or None where they do.

    `exact` says that the tokenizer keeps the documents, `whole` that the documents are the text.
    """
    if unknown:
        return f"{unknown:,} tokens of this text are <unk> to the {tokenizer.kind} tokenizer: not all was predicted"
    if not exact:
        return f"the {tokenizer.kind} tokenizer does not keep this text exactly (white space, case or normal form)"
    if not whole:
        return f"its {document} documents do not keep this text exactly (CR LF, or blank lines that are not one)"
    if END[document] and tokenizer.eos is None:
        return "the tokenizer has no <eos>, so the ends of documents were not predicted"
    return None


def surfaces(document: Document, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """What each id stands for in a stream (`Stream.surfaces`)."""
    sizes = tokenizer.sizes.copy()
    if tokenizer.eos is not None:
        sizes[tokenizer.eos, :2] = len(END[document])
    return sizes


def frame(ids: Ids, lengths: list[int], tokenizer: Tokenizer, *, ended: bool) -> Ids:
    """`<sos>` before each document and `<eos>` after it, placed without a loop over documents."""
    closed = 0 if tokenizer.eos is None else len(lengths) if ended else len(lengths) - 1
    widths = np.array(lengths, np.int64) + 1
    widths[:closed] += 1
    ends = np.cumsum(widths)
    framed = np.full(widths.sum(), tokenizer.sos, ids.dtype)
    inner = np.ones(len(framed), bool)
    inner[ends - widths] = False
    if tokenizer.eos is not None:
        framed[ends[:closed] - 1] = tokenizer.eos
        inner[ends[:closed] - 1] = False
    framed[inner] = ids
    return framed
