"""Texts as sources: encoded, framed, cut to what a reader can see, and padded a batch at a time."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.batch import Source
from seqwright.config import UserError
from seqwright.data.labelled import Long
from seqwright.data.lengths import Ints
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """Texts, or pairs of texts, as ids without any frame."""

    ids: Ints
    starts: Ints
    """(texts, parts)"""
    lengths: Ints
    """(texts, parts)"""
    unknown: int

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids."""
        whole = hashlib.sha256()
        for part in (self.ids, self.lengths):
            whole.update(part.astype("<u4").tobytes())
        return whole.hexdigest()

    def parts(self, text: int) -> list[Ints]:
        starts, lengths = self.starts[text], self.lengths[text]
        return [self.ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def encode(texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer) -> EncodedTexts:
    """Ids of every text, or pair of texts, in order."""
    parts = len(texts[0]) if texts else 1
    encoded = tokenizer.encode_all([part for text in texts for part in text])
    lengths = np.array(encoded.lengths, np.int64)
    return EncodedTexts(
        ids=encoded.ids.astype(np.int64),
        starts=(np.cumsum(lengths) - lengths).reshape(-1, parts),
        lengths=lengths.reshape(-1, parts),
        unknown=encoded.unknown,
    )


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Rows that a reader is given: one of each text, or several windows of a long one."""

    ids: Ints
    segments: NDArray[np.int8] | None
    """Which text of a pair each id belongs to."""
    words: NDArray[np.int8] | None
    """Where words begin and go on, where ids are characters."""
    starts: Ints
    lengths: Ints
    origin: Ints
    """Which text each row is of."""
    cut: int
    """Texts that did not fit."""
    lost: Ints
    """Tokens of each text that are not read."""
    pad: int

    def __len__(self) -> int:
        return len(self.origin)

    def padded(self, rows: Ints) -> Source:
        """These rows, as long as the longest."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]
        at = np.where(mask, self.starts[rows, None] + inside, 0)

        def padded(values: NDArray[Any] | None) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(np.where(mask, values[at], 0).astype(np.int64))

        return Source(
            mask=torch.from_numpy(mask),
            ids=torch.from_numpy(np.where(mask, self.ids[at], self.pad)),
            segments=padded(self.segments),
            words=padded(self.words),
        )


def frame(encoded: EncodedTexts, tokenizer: Tokenizer, *, longest: int | None, long: Long, framed: bool) -> Sources:
    """Each text as `<sos> text <eos>` (or bare), each pair as `<sos> one <eos> other <eos>`, within `longest` ids."""
    parts = encoded.lengths.shape[1]
    if parts > 1 and tokenizer.eos is None:
        raise UserError("two texts are parted by <eos>; keep it in tokenizer.specials.")
    before = [tokenizer.sos] if framed and tokenizer.sos is not None else []
    after = [tokenizer.eos] if (framed or parts > 1) and tokenizer.eos is not None else []
    room = None if longest is None else longest - len(before) - parts * len(after)
    if room is not None and room < parts:
        raise UserError(f"{longest} tokens leave no room between <sos> and <eos>; raise model.context or data.longest.")
    pad = tokenizer.pad or 0  # never attended, so without <pad> any id will do
    ids: list[Ints] = []
    segments: list[NDArray[np.int8]] = []
    origin: list[int] = []
    kept = np.zeros(len(encoded.lengths), np.int64)
    for n in range(len(encoded.lengths)):
        for pieces in cut(encoded.parts(n), room, long):
            kept[n] += sum(map(len, pieces))
            rows = [np.concatenate([before if p == 0 else [], piece, after]) for p, piece in enumerate(pieces)]
            if not any(map(len, rows)):
                rows = [np.array([pad])]  # so that every text has a position to be read at
            ids += [row.astype(np.int64) for row in rows]
            segments += [np.full(len(row), p, np.int8) for p, row in enumerate(rows)]
            origin.append(n)
    counted = np.array([len(part) for part in ids], np.int64).reshape(-1, parts)
    lengths = counted.sum(1)
    whole, starts = np.concatenate(ids), np.cumsum(lengths) - lengths
    return Sources(
        ids=whole,
        segments=np.concatenate(segments) if parts > 1 else None,
        words=tokenizer.word_marks(whole, starts) if tokenizer.kind == "characters" else None,
        starts=starts,
        lengths=lengths,
        origin=np.array(origin, np.int64),
        cut=int((encoded.lengths.sum(1) > room).sum()) if room is not None else 0,
        lost=(encoded.lengths.sum(1) - kept).clip(min=0),  # windows overlap
        pad=pad,
    )


def cut(parts: Sequence[Ints], room: int | None, long: Long) -> Iterator[list[Ints]]:
    """A text (or pair) in pieces that fit: itself, the part of it that the policy names, or windows all over it."""
    if room is None or sum(map(len, parts)) <= room:
        yield list(parts)
    elif long == "windows":
        (text,) = parts
        for start in np.linspace(0, len(text) - room, -(-len(text) // room)).astype(int):
            yield [text[start : start + room]]
    elif len(parts) == 1:
        yield [_ends(parts[0], room, long)]
    else:  # the longer one gives way first
        one, other = parts
        second = min(len(other), max(room // 2, room - len(one)))
        yield [_ends(one, room - second, long), _ends(other, second, long)]


def _ends(text: Ints, room: int, long: Long) -> Ints:
    head = {"head": room, "tail": 0, "head+tail": room // 4}[long]
    if len(text) <= room:
        return text
    return np.concatenate([text[:head], text[len(text) - (room - head) :]])
