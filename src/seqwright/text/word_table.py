"""Vectorized word lookup: white-space tokenization and ids of a large text without a Python object for each word.

A word of up to 15 bytes is two 64-bit integers: its bytes, and its length in the last one. They identify it exactly, so
that a lookup is a hash of both, a probe, and a comparison; longer words, which are rare, go through a dictionary.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core import native

Ids = NDArray[np.unsignedinteger[Any]]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

MAX_BYTES = 15
WORD = 8
"""Bytes of an integer."""
SPACES = [chr(c) for c in range(0x3001) if chr(c).isspace()]  # U+3000 is the last of them
"""What str.split splits at."""
WIDE_SPACES = [space for space in SPACES if not space.isascii()]
IS_SPACE = bytes(chr(c) in SPACES and c < 0x80 for c in range(256))
"""Of each byte of UTF-8, for `bytes.translate`."""
MASK = np.array([(1 << (8 * n)) - 1 for n in range(WORD + 1)], np.uint64)
"""Keeps the first n bytes of an integer, n = 0 to 8."""
MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Odd constants of multiplicative hashing: 2⁶⁴ / golden ratio, and a prime of xxHash."""
GROUP = 1 << 18
"""Characters looked up at once: arrays that stay in the cache."""
FIRST, BATCH = 1 << 20, 1 << 23
"""Characters counted by a dictionary, before there is a table, and by each table after that."""
SPARSITY = 4
"""Slots for each word, at least: few probes meet another word."""


class TableFields(ctypes.Structure):
    """`Table` of words.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("low", "high", "slots", "id", "is_space")),
        *((name, ctypes.c_int64) for name in ("bits", "none", "id_size")),
        ("multipliers", ctypes.c_uint64 * 2),
    )


@functools.cache
def functions() -> Any:
    """The functions of words.c; None where this machine cannot compile them."""
    library = native.library(Path(__file__).with_name("words.c")) if sys.byteorder == "little" else None
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.encode_words.argtypes = [pointer, ctypes.c_char_p, pointer, integer, *[pointer] * 4]
    return library


class WordTable:
    """Words to ids, as a hash table with linear probing that looks all words of a text up at once."""

    def __init__(self, ids: Mapping[str, int], unknown: int, dtype: type[np.unsignedinteger[Any]]):
        ids = {word: id for word, id in ids.items() if word.split() == [word]}  # no text has the others as a word
        self._ids, self._unknown = ids, unknown
        data, starts, ends, _ = split_words(list(ids))
        short = ends - starts <= MAX_BYTES
        self._low, self._high = (np.append(part, np.uint64(0)) for part in _integers(data, starts[short], ends[short]))
        values = np.fromiter(ids.values(), np.int64, len(ids))
        self._id = np.append(values[short], unknown).astype(dtype)
        self._none = len(self._id) - 1  # no word has length 0, so that nothing equals this entry
        self._bits = max(SPARSITY * self._none, 2).bit_length()
        self._slots = np.full(1 << self._bits, self._none, np.int32)
        entries = np.arange(self._none, dtype=np.int32)
        slot = self._hash(self._low[:-1], self._high[:-1])
        while len(entries):
            free = self._slots[slot] == self._none
            self._slots[slot[free]] = entries[free]  # of several words for one slot, one is written
            left = self._slots[slot] != entries
            entries, slot = entries[left], self._next(slot[left])

    def encode(self, texts: Sequence[str]) -> tuple[Ids, list[int]]:
        """The ids of all words, and the number of words in each text."""
        compiled = functions() is not None
        parts = [self._compiled(group) if compiled else self._encode(split_words(group)) for group in _groups(texts)]
        return np.concatenate([ids for ids, _ in parts]), list(chain.from_iterable(counts for _, counts in parts))

    def count(self, texts: Sequence[str], size: int, unknown: Counter[str]) -> Ints:
        """(size,) occurrences of each id; words that have none are counted in `unknown`."""
        total = np.zeros(size, np.int64)
        for group in _groups(texts):
            data, starts, ends, _ = words = split_words(group)
            ids, _ = self._encode(words)
            total += np.bincount(ids, minlength=size)[:size]
            missing = np.flatnonzero(ids == self._unknown)
            ranges = zip(starts[missing].tolist(), ends[missing].tolist(), strict=True)
            unknown.update(data[start:end].decode() for start, end in ranges)
        return total

    def _encode(self, words: tuple[bytes, Ints, Ints, list[int]]) -> tuple[Ids, list[int]]:
        data, starts, ends, counts = words
        low, high = _integers(data, starts, ends)
        slot = self._hash(low, high)
        entry = self._slots.take(slot)
        missed = np.flatnonzero((self._low.take(entry) != low) | (self._high.take(entry) != high))
        missed = missed[entry[missed] != self._none]
        while len(missed):
            slot[missed] = self._next(slot[missed])
            entry[missed] = probed = self._slots.take(slot[missed])
            other = (self._low[probed] != low[missed]) | (self._high[probed] != high[missed])
            missed = missed[other & (probed != self._none)]
        ids = self._id.take(entry)
        for word in np.flatnonzero(ends - starts > MAX_BYTES).tolist():
            ids[word] = self._ids.get(data[starts[word] : ends[word]].decode(), self._unknown)
        return ids, counts

    def _compiled(self, texts: Sequence[str]) -> tuple[Ids, list[int]]:
        """As `encode`, by compiled C."""
        data, text_ends = _utf8(texts)
        ids = np.empty_like(self._id, shape=len(data) // 2)  # at most: words of one byte
        counts, totals = np.empty(len(texts), np.int64), np.empty(2, np.int64)
        longs = np.empty((len(data) // WORD, 3), np.int64)
        ends_at, *outputs = (array.ctypes.data for array in (text_ends, ids, counts, longs, totals))
        functions().encode_words(ctypes.addressof(self._fields), data, ends_at, len(texts), *outputs)
        for word, start, end in longs[: totals[1]].tolist():
            ids[word] = self._ids.get(data[start:end].decode(), self._unknown)
        return ids[: totals[0]], counts.tolist()

    @functools.cached_property
    def _fields(self) -> TableFields:
        addresses = (array.ctypes.data for array in (self._low, self._high, self._slots, self._id))
        spaces = ctypes.cast(ctypes.c_char_p(IS_SPACE), ctypes.c_void_p)
        return TableFields(*addresses, spaces, self._bits, self._none, self._id.itemsize, tuple(MULTIPLIERS.tolist()))

    def _hash(self, low: Words, high: Words) -> Ints:
        """The first slot of each word: the top bits of a product, which depend on all others."""
        mixed = (low ^ high * MULTIPLIERS[1]) * MULTIPLIERS[0]
        return (mixed >> np.uint64(64 - self._bits)).view(np.int64)

    def _next(self, slot: Ints) -> Ints:
        return (slot + 1) & (len(self._slots) - 1)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Occurrences of each word: those of a large text by table, which grows with the vocabulary."""
    source, counts = iter(texts), Counter[str]()
    for text in _batch(source, FIRST):
        counts.update(text.split())
    while batch := _batch(source, BATCH):
        known = list(counts)
        table = WordTable({word: id for id, word in enumerate(known)}, len(known), np.uint32)
        new = Counter[str]()
        seen = table.count(batch, len(known), new)
        counts.update({known[id]: int(seen[id]) for id in np.flatnonzero(seen).tolist()})
        counts.update(new)
    return counts


def _batch(texts: Iterator[str], characters: int) -> list[str]:
    """The next texts, of so many characters together or the first to exceed them."""
    batch = list[str]()
    for text in texts:
        batch.append(text)
        characters -= len(text)
        if characters <= 0:
            break
    return batch


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Consecutive texts of about GROUP characters."""
    group = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts))) // GROUP
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])).tolist()
    return (texts[start:stop] for start, stop in pairwise([*first, len(texts)]))


def split_words(texts: Sequence[str]) -> tuple[bytes, Ints, Ints, list[int]]:
    """UTF-8 of all texts, the range of each word in it, and the number of words of each text."""
    data, text_ends = _utf8(texts)
    is_space = np.frombuffer(data.translate(IS_SPACE), np.bool_)[: -2 * WORD]
    borders = np.flatnonzero(np.append(False, is_space[1:] != is_space[:-1]))
    starts, ends = borders[0::2], borders[1::2]
    counts: list[int] = np.diff(np.searchsorted(starts, text_ends), prepend=0).tolist()
    return data, starts, ends, counts


def _utf8(texts: Sequence[str]) -> tuple[bytes, Ints]:
    """UTF-8 of all texts, each after a line break, with ASCII spaces only, and where each text ends."""
    joined = "\n".join(["", *texts, ""])
    if not joined.isascii() and any(space in joined for space in WIDE_SPACES):
        texts = [" ".join(text.split()) for text in texts]
        joined = "\n".join(["", *texts, ""])
    data = joined.encode()
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    if len(data) > len(joined):  # characters of several bytes, of which only the first is not 10......
        ends = np.flatnonzero(np.frombuffer(data, np.int8) >= -0x40)[ends]
    return data + bytes(2 * WORD), ends  # an integer may be read at any byte of a word


def _integers(data: bytes, starts: Ints, ends: Ints) -> tuple[Words, Words]:
    """The bytes of each word as two little-endian integers, the last byte of which is its length."""
    at_byte: Words = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))
    length = ends - starts
    low = at_byte[starts] & MASK.take(length, mode="clip")
    high = length.astype(np.uint64) << np.uint64(56)
    long = np.flatnonzero(length > WORD)
    high[long] |= at_byte[starts[long] + WORD] & MASK.take(np.minimum(length[long] - WORD, WORD - 1))
    return low, high
