"""Texts as sources of an encoder: encoded, truncated, with special tokens, and padded batch by batch."""

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
from seqwright.data.labeled.rows import Padding, Truncation
from seqwright.text.ragged import concatenated_ranges
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class EncodedTexts:
    """Ids of texts, or pairs of texts, without special tokens."""

    ids: Ints
    starts: Ints
    """(texts, parts)"""
    lengths: Ints
    """(texts, parts)"""
    unknown: int

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids."""
        digest = hashlib.sha256()
        for array in (self.ids, self.lengths):
            digest.update(array.astype("<u4").tobytes())
        return digest.hexdigest()


def encode(texts: Sequence[tuple[str, ...]], tokenizer: Tokenizer) -> EncodedTexts:
    """The encoded texts, or pairs of texts, in order."""
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
    """Rows of an encoder's input: one per text, or several windows of a long one."""

    ids: Ints
    segments: NDArray[np.int8] | None
    """(ids,): index of the text of a pair that each id belongs to."""
    words: NDArray[np.int8] | None
    """(ids,): word boundaries where ids are characters (`Source.words`)."""
    starts: Ints
    lengths: Ints
    origin: Ints
    """(rows,): index of the text of each row."""
    truncated: int
    """Number of texts that do not fit into one row."""
    lost: Ints
    """(texts,): tokens that truncation drops."""
    pad: int
    mask_padding: bool = True
    """Whether padding is masked; otherwise the model reads `<pad>` as a token."""

    def __len__(self) -> int:
        return len(self.origin)

    def padded(self, rows: Ints) -> Source:
        """The source of these rows, padded to the longest."""
        inside = np.arange(self.lengths[rows].max())
        mask = inside < self.lengths[rows, None]
        at = np.where(mask, self.starts[rows, None] + inside, 0)

        def padded(values: NDArray[Any] | None) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(np.where(mask, values[at], 0).astype(np.int64))

        return Source(
            mask=torch.from_numpy(mask if self.mask_padding else np.ones_like(mask)),
            ids=torch.from_numpy(np.where(mask, self.ids[at], self.pad)),
            segments=padded(self.segments),
            words=padded(self.words),
        )


def frame(
    encoded: EncodedTexts,
    tokenizer: Tokenizer,
    *,
    max_length: int | None,
    truncation: Truncation,
    add_special_tokens: bool,
    padding: Padding = "masked",
) -> Sources:
    """Texts as `<sos> text <eos>` (or without special tokens), pairs as `<sos> one <eos> other <eos>`, truncated to
    `max_length` ids, or padded to as many with `<pad>`."""
    parts = encoded.lengths.shape[1]
    if parts > 1 and tokenizer.eos is None:
        raise UserError("the texts of a pair are separated by <eos>; keep it in tokenizer.special_tokens.")
    if padding != "masked" and tokenizer.pad is None:
        raise UserError(f'data.padding = "{padding}" needs <pad>; keep it in tokenizer.special_tokens.')
    sos = add_special_tokens and tokenizer.sos is not None
    eos = (add_special_tokens or parts > 1) and tokenizer.eos is not None
    room = None if max_length is None else max_length - sos - parts * eos
    if room is not None and room < parts:
        raise UserError(
            f"{max_length} tokens leave no room between <sos> and <eos>; raise model.context or data.max_length."
        )
    kept = truncate(encoded.lengths, room, truncation)
    # A row is a chain of slices (part, start, length) of one array: all ids, then <sos>, <eos> and padding at its end.
    shortest = max_length or 1 if padding == "max_length" else 1  # every text has at least one position
    ids = np.concatenate([encoded.ids, [tokenizer.sos or 0, tokenizer.eos or 0], [tokenizer.padding] * shortest])
    begins, ends = encoded.starts[kept.origin], (encoded.starts + encoded.lengths)[kept.origin]
    ones = np.ones(len(kept.origin), np.int64)
    chain = [(0, ones * len(encoded.ids), ones * sos)]
    for p in range(parts):
        chain.append((p, (begins + kept.skipped)[:, p], kept.head[:, p]))
        chain.append((p, (ends - kept.tail)[:, p], kept.tail[:, p]))
        chain.append((p, ones * (len(encoded.ids) + 1), ones * eos))
    missing = shortest - np.sum([length for _, _, length in chain], 0)
    chain.append((0, ones * (len(encoded.ids) + 2), missing.clip(min=0)))
    part, start, length = (np.stack(np.broadcast_arrays(*column), -1) for column in zip(*chain, strict=True))
    framed = ids[concatenated_ranges(start.ravel(), length.ravel())]
    lengths = length.sum(1)
    starts = np.cumsum(lengths) - lengths
    kept_tokens = np.bincount(kept.origin, (kept.head + kept.tail).sum(1), len(encoded.lengths)).astype(np.int64)
    return Sources(
        ids=framed,
        segments=np.repeat(np.tile(part.astype(np.int8), len(ones)), length.ravel()) if parts > 1 else None,
        words=tokenizer.word_bio(framed, starts) if tokenizer.kind == "characters" else None,
        starts=starts,
        lengths=lengths,
        origin=kept.origin,
        truncated=int((encoded.lengths.sum(1) > room).sum()) if room is not None else 0,
        lost=(encoded.lengths.sum(1) - kept_tokens).clip(min=0),  # overlapping windows keep more than all
        pad=tokenizer.padding,
        mask_padding=padding == "masked",
    )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The ids of a text that each row keeps: per part, `head` ids after `skipped` ones, and the last `tail` ids."""

    origin: Ints
    """(rows,): index of the text of each row."""
    skipped: Ints
    """(rows, parts)"""
    head: Ints
    """(rows, parts)"""
    tail: Ints
    """(rows, parts)"""


def truncate(lengths: Ints, room: int | None, truncation: Truncation) -> Kept:
    """What is kept of texts (or pairs) of these lengths (texts, parts) in rows of at most `room` ids: all, the part
    that `truncation` names, or evenly spread windows."""
    origin, none = np.arange(len(lengths)), np.zeros_like(lengths)
    if room is None:
        return Kept(origin=origin, skipped=none, head=lengths, tail=none)
    if truncation == "windows":
        assert lengths.shape[1] == 1, "windows are of single texts"
        count = np.maximum(1, -(-lengths[:, 0] // room))
        number = concatenated_ranges(np.zeros_like(count), count)[:, None]  # 0, 1, … among the windows of a text
        origin = np.repeat(origin, count)
        skipped = number * (lengths - room)[origin] // np.maximum(count - 1, 1)[origin, None]
        return Kept(origin=origin, skipped=skipped, head=np.minimum(lengths, room)[origin], tail=none[origin])
    share = np.full_like(lengths, room)
    if lengths.shape[1] == 2:  # truncate the longer one first, as BERT does
        share[:, 1] = np.minimum(lengths[:, 1], np.maximum(room // 2, room - lengths[:, 0]))
        share[:, 0] -= share[:, 1]
    share = np.where(lengths.sum(1, keepdims=True) > room, np.minimum(share, lengths), lengths)
    first = {"head": share, "tail": none, "head+tail": share // 4}[truncation]
    head = np.where(share < lengths, first, lengths)
    return Kept(origin=origin, skipped=none, head=head, tail=share - head)
