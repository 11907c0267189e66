"""Texts as sources: encoded, framed, cut to what a reader can see, and padded a batch at a time."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.data.bucketing import Ints
from seqwright.data.labeled.rows import Long
from seqwright.text.ragged import concatenated_ranges
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


def encode(texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer) -> EncodedTexts:
    """Ids of every text, or pair of texts, in order."""
    parts = len(texts[0]) if texts else 1
    encoded = tokenizer.encode_batch([part for text in texts for part in text])
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
        raise UserError("two texts are parted by <eos>; keep it in tokenizer.special_tokens.")
    sos = framed and tokenizer.sos is not None
    eos = (framed or parts > 1) and tokenizer.eos is not None
    room = None if longest is None else longest - sos - parts * eos
    if room is not None and room < parts:
        raise UserError(
            f"{longest} tokens leave no room between <sos> and <eos>; raise model.context or data.max_length."
        )
    kept = cut(encoded.lengths, room, long)
    # A row is a chain of stretches of one array, at the end of which the reserved ids stand: part, place and length.
    ids = np.concatenate([encoded.ids, [tokenizer.sos or 0, tokenizer.eos or 0, tokenizer.padding]])
    begins, ends = encoded.starts[kept.origin], (encoded.starts + encoded.lengths)[kept.origin]
    one = np.ones(len(kept.origin), np.int64)
    chain = [(0, one * (len(ids) - 3), one * sos)]
    for p in range(parts):
        chain.append((p, (begins + kept.skipped)[:, p], kept.head[:, p]))
        chain.append((p, (ends - kept.tail)[:, p], kept.tail[:, p]))
        chain.append((p, one * (len(ids) - 2), one * eos))
    empty = sum(length for _, _, length in chain) == 0
    chain.append((0, one * (len(ids) - 1), one * empty))  # so that every text has a position to be read at
    part, place, length = (np.stack(np.broadcast_arrays(*column), -1) for column in zip(*chain, strict=True))
    whole = ids[concatenated_ranges(place.ravel(), length.ravel())]
    lengths = length.sum(1)
    starts = np.cumsum(lengths) - lengths
    read = np.bincount(kept.origin, (kept.head + kept.tail).sum(1), len(encoded.lengths)).astype(np.int64)
    return Sources(
        ids=whole,
        segments=np.repeat(np.tile(part.astype(np.int8), len(one)), length.ravel()) if parts > 1 else None,
        words=tokenizer.word_bio(whole, starts) if tokenizer.kind == "characters" else None,
        starts=starts,
        lengths=lengths,
        origin=kept.origin,
        cut=int((encoded.lengths.sum(1) > room).sum()) if room is not None else 0,
        lost=(encoded.lengths.sum(1) - read).clip(min=0),  # windows overlap
        pad=tokenizer.padding,
    )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What rows hold of the texts they are of: of each part, so many ids after those skipped, and its last ones."""

    origin: Ints
    """(rows,): which text each is of."""
    skipped: Ints
    """(rows, parts)"""
    head: Ints
    """(rows, parts)"""
    tail: Ints
    """(rows, parts)"""


def cut(lengths: Ints, room: int | None, long: Long) -> Kept:
    """Texts (or pairs) of these lengths (texts, parts) in rows that fit: all of each, the part of it that the policy
    names, or windows all over it."""
    origin, none = np.arange(len(lengths)), np.zeros_like(lengths)
    if room is None:
        return Kept(origin=origin, skipped=none, head=lengths, tail=none)
    if long == "windows":
        assert lengths.shape[1] == 1, "windows are of single texts"
        count = np.maximum(1, -(-lengths[:, 0] // room))
        number = concatenated_ranges(np.zeros_like(count), count)[:, None]  # 0, 1, … among the windows of a text
        origin = np.repeat(origin, count)
        skipped = number * (lengths - room)[origin] // np.maximum(count - 1, 1)[origin, None]
        return Kept(origin=origin, skipped=skipped, head=np.minimum(lengths, room)[origin], tail=none[origin])
    share = np.full_like(lengths, room)
    if lengths.shape[1] == 2:  # the longer one gives way first
        share[:, 1] = np.minimum(lengths[:, 1], np.maximum(room // 2, room - lengths[:, 0]))
        share[:, 0] -= share[:, 1]
    share = np.where(lengths.sum(1, keepdims=True) > room, np.minimum(share, lengths), lengths)
    first = {"head": share, "tail": none, "head+tail": share // 4}[long]
    head = np.where(share < lengths, first, lengths)
    return Kept(origin=origin, skipped=none, head=head, tail=share - head)
