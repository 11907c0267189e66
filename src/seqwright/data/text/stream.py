"""A corpus as one stream of ids, with `<sos>` and `<eos>` around every document.

Lines and paragraphs are *ended* by `<eos>`; files are *separated* by it. A lone file, or a part of one, has no end that
could be predicted, so that n characters are exactly n targets. `<sos>` is input only, never a target (decision 3).
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
from seqwright.text.tokenizer import Tokenizer
from seqwright.text.word_table import Ids

CHUNK = 1 << 20
"""Ids per chunk when scanning a stream."""


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Token ids of a corpus with the facts that batches and scores need."""

    ids: Ids = field(repr=False)
    """(N,) with `<sos>` and `<eos>`; the target at position p is id p + 1, unless that is `<sos>`."""
    sos: int
    pad: int
    documents: int
    unknown: int
    """Number of `<unk>` ids."""
    lossy: str | None = None
    """Why the text cannot be recovered from the ids; None where it can, so that bits per byte are well defined."""
    surfaces: NDArray[np.int64] = field(repr=False)
    """(V, 3): bytes and characters of each id's surface, those of `<eos>` being the end of a document, and how many of
    them are absent from the text at the start of a document, where some tokenizers add a space."""
    unended: Mapping[int, int] = field(default_factory=dict, repr=False)
    """Positions of `<eos>` whose document end is incomplete in the text → number of missing characters."""
    text_hash: str | None = None
    """sha256 of the text (`Corpus.text_hash`); None where only its ids are known."""
    recorded_fingerprint: str | None = None
    """Fingerprint on record of ids that are streamed, and not to be scanned (`data/text/streamed.py`)."""

    @property
    def streamed(self) -> bool:
        """Whether the ids come from elsewhere while they are read."""
        return self.recorded_fingerprint is not None

    @property
    def positions(self) -> int:
        """Number of positions with a next id, whether it is a target or `<sos>`."""
        return len(self.ids) - 1

    @functools.cached_property
    def targets(self) -> int:
        """Number of target ids: all but `<sos>`."""
        if self.streamed:
            return len(self.ids) - self.documents
        return len(self.ids) - sum(int(np.count_nonzero(chunk == self.sos)) for chunk in self._chunks())

    def text(self, tokenizer: Tokenizer) -> bytes:
        """The text of a lossless stream in UTF-8."""
        starts = np.append(self.starts, len(self.ids))
        ends = b"\n" * int(self.surfaces[:, 0][tokenizer.eos]) if tokenizer.eos is not None else b""
        parts = []
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            ids = self.ids[start + 1 : end].tolist()
            ended = ends if ids and ids[-1] == tokenizer.eos else b""
            parts.append(tokenizer.decode(ids).encode() + ended[: len(ended) - self.unended.get(end - 1, 0)])
        return b"".join(parts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(positions, 2): bytes and characters of the surface of the id after each position.

        In a lossless stream they add up to the text, so that any part of it has bits per byte of its own (decision 3).
        """
        following = self.ids[1:]
        sizes = self.surfaces[following, :2]
        starts = np.flatnonzero(self.ids[:-1] == self.sos)
        sizes[starts] -= self.surfaces[following[starts], 2:]
        for position, missing in self.unended.items():
            if position < len(self.ids):
                sizes[position - 1] -= missing
        return sizes

    def first(self, tokens: int) -> Stream:
        """The first `tokens` positions of the stream, or all of it."""
        text_hash = self.text_hash if tokens >= self.positions else None
        return replace(self, ids=self.ids[: tokens + 1], text_hash=text_hash, recorded_fingerprint=None)

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids: a resumed run must find the same corpus."""
        if self.recorded_fingerprint is not None:
            return self.recorded_fingerprint
        digest = hashlib.sha256()
        for chunk in self._chunks():
            digest.update(chunk.astype("<u4").tobytes())
        return digest.hexdigest()

    @property
    def signature(self) -> dict[str, str]:
        """What the signature of a score says of the text: models of other tokenizers are scored on the same one."""
        return {"ids": self.fingerprint[:8]} if self.text_hash is None else {"text": self.text_hash[:8]}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(documents,): ids of each document without `<sos>`."""
        return np.diff(self.starts, append=len(self.ids)) - 1

    @property
    def starts(self) -> NDArray[np.int64]:
        """(documents,): positions of `<sos>`."""
        starts = [np.flatnonzero(chunk == self.sos) + number * CHUNK for number, chunk in enumerate(self._chunks())]
        return np.concatenate(starts)

    def _chunks(self) -> Iterator[Ids]:
        """The ids chunk by chunk: they may be memory-mapped, and larger than memory."""
        return (self.ids[start : start + CHUNK] for start in range(0, len(self.ids), CHUNK))

    def gather(self, positions: NDArray[np.int64], real: NDArray[np.bool_]) -> tuple[Ids, NDArray[np.int64]]:
        """Input and target (B, T) at these positions; padding and IGNORE where `real` (B, T) is False."""
        inside = np.where(real, positions, 0)
        input = np.where(real, self.ids[inside], self.pad)
        following = self.ids[inside + 1].astype(np.int64)
        return input, np.where(real & (following != self.sos), following, IGNORE)


def make_stream(corpus: Corpus, tokenizer: Tokenizer) -> Stream:
    """The stream of ids of a corpus."""
    if tokenizer.sos is None:
        raise UserError("documents of a stream begin with <sos>; add it to tokenizer.special_tokens.")
    encoded = tokenizer.encode_batch(corpus.documents)
    if not corpus.documents or (not len(encoded.ids) and (corpus.kind == "file" or tokenizer.eos is None)):
        raise UserError("the text has no tokens, so there is nothing to predict; give more text.")
    ids = frame(encoded.ids, encoded.lengths, tokenizer, ended=corpus.kind != "file")
    starts = np.append(np.flatnonzero(ids == tokenizer.sos), len(ids))
    return Stream(
        ids=ids,
        sos=tokenizer.sos,
        # Padding is masked in attention and loss, so without <pad> any id will do.
        pad=tokenizer.sos if tokenizer.pad is None else tokenizer.pad,
        documents=len(corpus.documents),
        unknown=encoded.unknown,
        lossy=lossy(corpus.kind, tokenizer, unknown=encoded.unknown, exact=encoded.exact, whole=corpus.exact),
        surfaces=surfaces(corpus.kind, tokenizer),
        unended={int(starts[document + 1]) - 1: missing for document, missing in corpus.unended.items()},
        text_hash=corpus.text_hash,
    )


def to_batch(input: NDArray[np.integer], target: NDArray[np.int64]) -> Batch:
    """The batch of a language model."""
    return Batch.of_text(torch.from_numpy(input.astype(np.int64)), torch.from_numpy(target))


def lossy(document: Document, tokenizer: Tokenizer, *, unknown: int, exact: bool, whole: bool) -> str | None:
    """Why a text cannot be recovered from its ids, or None where it can.

    `exact`: the tokenizer is lossless on the documents; `whole`: the documents and their ends reproduce the text.
    """
    if unknown:
        return f"{unknown:,} tokens of this text are <unk> to the {tokenizer.kind} tokenizer, so not all is predicted"
    if not exact:
        return f"the {tokenizer.kind} tokenizer is lossy on this text (white space, case or Unicode normalization)"
    if not whole:
        return f"its {document} documents do not reproduce this text exactly (irregular blank lines)"
    if END[document] and tokenizer.eos is None:
        return "the tokenizer has no <eos>, so the ends of documents are not predicted"
    return None


def surfaces(document: Document, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """(V, 3) surface sizes of each id in a stream (`Stream.surfaces`)."""
    sizes = tokenizer.sizes.copy()
    if tokenizer.eos is not None:
        sizes[tokenizer.eos, :2] = len(END[document])
    return sizes


def frame(ids: Ids, lengths: list[int], tokenizer: Tokenizer, *, ended: bool) -> Ids:
    """The ids of documents with `<sos>` before each and `<eos>` after it (`ended`) or between them; vectorized."""
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
