"""ARPA parser for files of seqwright, KenLM and SRILM, vectorized over n-grams; errors name the line.

A section is split into fields at the boundaries between white space and other bytes. Words are looked up by a 64-bit
polynomial rolling hash of their bytes; the hashes of the vocabulary are checked to be distinct.
"""

from __future__ import annotations

import functools
import gzip
import lzma
import math
import mmap
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.models.ngram.arpa_writing import LN10, LOG10_ZERO, RESERVED, Bytes
from seqwright.models.ngram.counting import Ints
from seqwright.models.ngram.tables import ABSENT, Level, Tables, binary_search

SPECIAL_TOKENS = ("<unk>", "<pad>", "<sos>", "<eos>")
"""Special tokens of an imported vocabulary: ids 0 to 3."""
SPECIAL_IDS = {"<unk>": 0, "<UNK>": 0, "<s>": 2, "</s>": 3}
"""Ids of the special tokens by their spelling in ARPA files."""
CHUNK = 1 << 22
"""Bytes parsed at a time; no line may be longer."""
HASH_BASE = np.uint64(0x9E3779B97F4A7C15)
"""Base of the polynomial hash: 2⁶⁴ / golden ratio, odd and therefore invertible modulo 2⁶⁴."""
NEWLINE, BLANK = 10, 32


def read_arpa(path: Path, names: Sequence[str] | None = None) -> tuple[Tables, list[str]]:
    """The tables of an ARPA file and its tokens by id: SPECIAL_TOKENS first, then words in file order; or of a known
    vocabulary, whose `names` come from `arpa_names`."""
    file = _File(path)
    sections = file.sections()
    unigrams = file.parse(sections[0])
    tokens, ids = _vocabulary(unigrams.words) if names is None else (list(names), _known(path, unigrams, names))
    lookup = _Lookup(unigrams.hashes[:, 0], ids)
    if lookup.duplicate is not None:
        raise file.error(unigrams.lines[lookup.duplicate], f"duplicate 1-gram '{unigrams.words[lookup.duplicate]}'.")
    levels = [_unigram_level(unigrams, ids, len(tokens), len(sections))]
    for section in sections[1:]:
        fields = file.parse(section)
        words = lookup(fields.hashes)
        if (words == ABSENT).any():
            raise file.error(
                fields.lines[(words == ABSENT).any(1)][0], "a word is not in the vocabulary (the 1-grams)."
            )
        levels.append(_level(file, fields, words, levels, len(tokens), top=section is sections[-1]))
    return Tables(levels, len(tokens)), tokens


@dataclass(frozen=True)
class Section:
    """Byte range of the n-grams of one order."""

    n: int
    count: int
    """Number of n-grams stated in the header."""
    line: int
    """Line number of its first n-gram."""
    start: int
    stop: int


@dataclass(frozen=True)
class Fields:
    """Parsed columns of a section, one row per n-gram."""

    log_prob: NDArray[np.float64]
    """(R,), natural logarithms."""
    back_off: NDArray[np.float64]
    """(R,), natural logarithms; 0 where the line has none."""
    hashes: Ints
    """(R, n): hashes of the words."""
    lines: Ints
    """(R,): line numbers."""
    words: list[str]
    """The words of 1-grams; empty for higher orders."""


class _File:
    """The bytes of an ARPA file, memory-mapped unless compressed."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.map = _read_bytes(path)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:  # ValueError: an empty file
            raise UserError(f"cannot read {path}: {error}.") from None
        self.data: Bytes = np.frombuffer(self.map, np.uint8)

    def error(self, line: int, reason: str) -> UserError:
        return UserError(f"{self.path}, line {line}: {reason} Export the file again with the program that wrote it.")

    def sections(self) -> list[Section]:
        """The n-gram sections, in the order and number that the \\data\\ header states."""
        counts: list[int] = []
        sections: list[Section] = []
        for header, line, start, stop in self._blocks():
            n = len(sections) + 1
            expected = "\\data\\" if not counts else f"\\{n}-grams:" if n <= len(counts) else "\\end\\"
            if header != expected:
                raise self.error(line, f"expected {expected} here.")
            if header == "\\end\\":
                return sections
            if header == "\\data\\":
                counts = [int(count) for count in re.findall(rb"ngram\s+\d+\s*=\s*(\d+)", self.map[start:stop])]
            else:
                sections.append(Section(n, counts[n - 1], line + 1, start, stop))
        raise self.error(
            1 + self._newlines(0, len(self.data)), "there is no \\end\\: the file is truncated or not ARPA."
        )

    def _blocks(self) -> Iterator[tuple[str, int, int, int]]:
        """Section headers, with their line numbers and the byte range of what follows them."""
        mark = max(self.map.find(b"\\data\\"), 0)
        line = 1 + self._newlines(0, mark)
        while mark < len(self.data):
            header, _, _ = self.map[mark : mark + 80].partition(b"\n")
            stop = self.map.find(b"\n\\", mark) + 1 or len(self.data)
            yield header.decode(errors="replace").strip(), line, mark + len(header) + 1, stop
            line += self._newlines(mark, stop)
            mark = stop

    def parse(self, section: Section) -> Fields:
        """The columns of a section, parsed chunk by chunk."""
        start, line = section.start, section.line
        chunks = [self._parse_chunk(section.n, line, self.data[:0])]
        while start < section.stop:
            stop = 1 + self.map.rfind(b"\n", start, min(start + CHUNK, section.stop))  # whole lines
            if not stop:
                raise self.error(line, f"the line is longer than {CHUNK:,} bytes.")
            chunks.append(self._parse_chunk(section.n, line, self.data[start:stop]))
            line += self._newlines(start, stop)
            start = stop
        fields = Fields(
            np.concatenate([part.log_prob for part in chunks]),
            np.concatenate([part.back_off for part in chunks]),
            np.concatenate([part.hashes for part in chunks]),
            np.concatenate([part.lines for part in chunks]),
            [word for part in chunks for word in part.words],
        )
        if len(fields.lines) != section.count:
            n = section.n
            raise self.error(
                section.line, f"the header announces {section.count} {n}-grams, but {len(fields.lines)} follow."
            )
        return fields

    def _parse_chunk(self, n: int, line: int, text: Bytes) -> Fields:
        """The columns of whole lines of n-grams; `line` is the number of the first."""
        inside = np.concatenate([[False], text > BLANK, [False]])
        starts = np.flatnonzero(inside[1:-1] & ~inside[:-2])
        ends = np.flatnonzero(inside[1:-1] & ~inside[2:]) + 1
        upto = np.searchsorted(starts, np.flatnonzero(text == NEWLINE))  # fields before the end of each line
        first, width = np.append(0, upto[:-1]), np.diff(upto, prepend=0)
        lines = line + np.flatnonzero(width)
        first, width = first[width > 0], width[width > 0]
        wrong = (width != n + 1) & (width != n + 2)
        if wrong.any():
            raise self.error(lines[wrong][0], f"expected a log-probability, {n} words and an optional back-off weight.")

        def logs(at: Ints, of: Ints) -> NDArray[np.float64]:
            numbers = _parse_floats(text, starts[at], ends[at])
            if np.isnan(numbers).any():
                raise self.error(of[np.isnan(numbers)][0], "expected a number.")
            return np.where(numbers <= LOG10_ZERO, -np.inf, numbers * LN10)

        back_off, weighted = np.zeros(len(first)), width == n + 2
        back_off[weighted] = logs(first[weighted] + n + 1, lines[weighted])
        words = first[:, None] + 1 + np.arange(n)
        strings = []
        if n == 1:
            strings = [self._decode(text[starts[w] : ends[w]], int(at)) for (w,), at in zip(words, lines, strict=True)]
        return Fields(logs(first, lines), back_off, _hashes(text, starts, ends)[words], lines, strings)

    def _decode(self, word: Bytes, line: int) -> str:
        try:
            return word.tobytes().decode()
        except UnicodeDecodeError as error:
            raise self.error(line, f"the word is not UTF-8: {error.reason}.") from None

    def _newlines(self, start: int, stop: int) -> int:
        return int(np.count_nonzero(self.data[start:stop] == NEWLINE))


def _read_bytes(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file: memory-mapped, or decompressed where it is .gz or .xz."""
    if path.suffix in (".gz", ".xz"):
        with (gzip.open if path.suffix == ".gz" else lzma.open)(path) as compressed:
            return bytes(compressed.read())
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _parse_floats(text: Bytes, starts: Ints, ends: Ints) -> NDArray[np.float64]:
    """The decimal numbers in the given fields, NaN where a field is not a number."""
    width = int((ends - starts).max(initial=1))
    at = starts[:, None] + np.arange(width)
    characters = np.where(at < ends[:, None], text.take(at, mode="clip"), 0).astype(np.uint8)  # (R, width)
    minus, dots, digits = characters[:, 0] == ord("-"), characters == ord("."), characters - np.uint8(ord("0"))
    is_digit = digits <= 9
    value, decimals, past_dot = np.zeros(len(starts)), np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    for digit, real, dot in zip(digits.T, is_digit.T, dots.T, strict=True):
        value = np.where(real, value * 10 + digit, value)
        decimals += real & past_dot
        past_dot |= dot
    value = np.where(minus, -value, value) / 10.0**decimals
    plain = (is_digit.sum(1) + dots.sum(1) + minus == ends - starts) & (dots.sum(1) <= 1) & is_digit.any(1)
    for row in np.flatnonzero(~plain):  # exponents, inf: rare, so Python parses them
        value[row] = _parse_float(characters[row].tobytes().rstrip(b"\0"))
    return value


def _parse_float(field: bytes) -> float:
    try:
        return float(field)
    except ValueError:
        return math.nan


def _hashes(text: Bytes, starts: Ints, ends: Ints) -> Ints:
    """Polynomial hashes of fields modulo 2⁶⁴: differences of prefix sums, times the inverse power of their offset."""
    powers, inverse = _powers()
    running = np.concatenate([[np.uint64(0)], np.cumsum(text * powers[: len(text)], dtype=np.uint64)])
    return ((running[ends] - running[starts]) * inverse[starts]).view(np.int64)


@functools.cache
def _powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Powers of HASH_BASE and of its inverse modulo 2⁶⁴."""
    inverse = np.uint64(pow(int(HASH_BASE), -1, 2**64))
    return np.cumprod(np.full(CHUNK, HASH_BASE), dtype=np.uint64), np.cumprod(np.full(CHUNK, inverse), dtype=np.uint64)


class _Lookup:
    """Word hashes to ids: a direct-mapped table on the leading bits; on a miss, binary search in the sorted hashes."""

    def __init__(self, hashes: Ints, ids: Ints):
        order = np.argsort(hashes, kind="stable")
        self.hashes, self.ids = hashes[order], ids[order]
        repeated = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        self.duplicate = int(order[repeated + 1].min()) if len(repeated) else None
        """Index of the first word with a hash seen before (a repeated word, or a collision), or None."""
        self.shift = np.uint64(64 - len(hashes).bit_length() - 3)
        self.table = np.zeros(1 << int(64 - self.shift), np.int64)
        self.table[self._slots(self.hashes)] = np.arange(len(hashes))

    def __call__(self, hashes: Ints) -> Ints:
        """Ids, ABSENT where no word has the hash."""
        index = self.table[self._slots(hashes)]
        missed = self.hashes[index] != hashes
        index[missed] = binary_search(self.hashes, hashes[missed])
        return np.where(index == ABSENT, ABSENT, self.ids[index])

    def _slots(self, hashes: Ints) -> Ints:
        return (hashes.view(np.uint64) >> self.shift).view(np.int64)


def _vocabulary(words: list[str]) -> tuple[list[str], Ints]:
    """Tokens by id, and the ids of the given words."""
    tokens, ids = list(SPECIAL_TOKENS), []
    for word in words:
        if word in SPECIAL_IDS:
            ids.append(SPECIAL_IDS[word])
        else:
            ids.append(len(tokens))
            tokens.append(_unescape(word))
    return tokens, np.array(ids)


def _known(path: Path, unigrams: Fields, names: Sequence[str]) -> Ints:
    """The ids of the words of 1-grams in a known vocabulary."""
    id_of = {name: id for id, name in enumerate(names)}
    ids = [id_of.get("<unk>" if word == "<UNK>" else word, ABSENT) for word in unigrams.words]
    if ABSENT in ids:
        at = ids.index(ABSENT)
        raise UserError(
            f"{path}, line {unigrams.lines[at]}: the tokenizer has no token '{unigrams.words[at]}'; name the"
            " tokenizer.json of the run that was exported."
        )
    return np.array(ids)


def _unescape(word: str) -> str:
    """Inverse of `arpa_names`; byte escapes that are not valid UTF-8 (of other programs) stay as they are."""
    if RESERVED.fullmatch(word):
        word = word.removeprefix("\\")
    return re.sub(r"(<0x[0-9A-F]{2}>)+", lambda match: _decode_escapes(match[0]), word)


def _decode_escapes(escapes: str) -> str:
    try:
        return bytes.fromhex(escapes[3:-1].replace("><0x", "")).decode()
    except UnicodeDecodeError:
        return escapes


def _unigram_level(fields: Fields, ids: Ints, vocabulary: int, orders: int) -> Level:
    """The 1-grams as a level with a row for every id of the vocabulary."""
    log_prob, back_off = np.full(vocabulary, -np.inf, np.float32), np.zeros(vocabulary, np.float32)
    log_prob[ids], back_off[ids] = fields.log_prob, fields.back_off
    log_prob[
        ids[[word == "<s>" for word in fields.words]]
    ] = -np.inf  # never predicted; SRILM writes -99 there, KenLM 0
    return Level(np.arange(vocabulary), log_prob, back_off if orders > 1 else None, None)


def _level(file: _File, fields: Fields, words: Ints, levels: list[Level], vocabulary: int, *, top: bool) -> Level:
    """The n-grams of one order as a sorted level; the highest order has no back-off weights."""
    prefix = words[:, 0]
    for level, column in zip(levels[1:], words.T[1:-1], strict=True):
        prefix = level.lookup(prefix, column, vocabulary)
    if (prefix == ABSENT).any():
        raise file.error(
            fields.lines[prefix == ABSENT][0], "its prefix (all words but the last) is not an n-gram of the file."
        )
    key = prefix * vocabulary + words[:, -1]
    order = np.argsort(key, kind="stable")
    repeated = key[order][1:] == key[order][:-1]
    if repeated.any():
        raise file.error(fields.lines[order[1:][repeated]].min(), "duplicate n-gram.")
    log_prob, back_off = (logs[order].astype(np.float32) for logs in (fields.log_prob, fields.back_off))
    return Level(key[order], log_prob, None if top else back_off, None)
