"""EncoderOutput ARPA files, ours, KenLM's and SRILM's, with no loop over n-grams; a fault is named by its line.

A section is cut into fields where its bytes turn from blank to not; words are recognized by a 64-bit polynomial of
their bytes, whose values for the vocabulary are checked to be distinct.
"""

from __future__ import annotations

import functools
import gzip
import lzma
import math
import mmap
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.models.ngram.arpa_writing import LN10, NO_MASS, RESERVED, Bytes
from seqwright.models.ngram.counting import Rows
from seqwright.models.ngram.tables import ABSENT, Level, Tables, search

SPECIALS = ("<unk>", "<pad>", "<sos>", "<eos>")
"""The first ids of a vocabulary that is read from a file."""
SPELT = {"<unk>": 0, "<UNK>": 0, "<s>": 2, "</s>": 3}
"""How files spell them."""
CHUNK = 1 << 22
"""Bytes cut into fields at once."""
BASE = np.uint64(0x9E3779B97F4A7C15)
NEWLINE, BLANK = 10, 32


def read_arpa(path: Path) -> tuple[Tables, list[str]]:
    """A model and its tokens; ids 0 to 3 are <unk>, <pad>, <sos> and <eos>, then words as they stand in the file."""
    file = _File(path)
    sections = file.sections()
    unigrams = file.parse(sections[0])
    names, ids = _vocabulary(unigrams.words)
    lookup = _Lookup(unigrams.hashes[:, 0], ids)
    if lookup.twice is not None:
        raise file.fault(
            unigrams.lines[lookup.twice], f"'{unigrams.words[lookup.twice]}' stands twice among the 1-grams."
        )
    levels = [_unigram_level(unigrams, ids, len(names), len(sections))]
    for section in sections[1:]:
        fields = file.parse(section)
        words = lookup(fields.hashes)
        if (words == ABSENT).any():
            raise file.fault(fields.lines[(words == ABSENT).any(1)][0], "a word is not among the 1-grams.")
        levels.append(_level(file, fields, words, levels, len(names), top=section is sections[-1]))
    return Tables(levels, len(names)), names


@dataclass(frozen=True)
class Section:
    """The lines of the n-grams of one length."""

    n: int
    count: int
    """N-grams announced in the head of the file."""
    line: int
    start: int
    stop: int


@dataclass(frozen=True)
class Fields:
    """What stands in the lines of a section."""

    log_prob: NDArray[np.float64]
    """Natural logarithms."""
    back_off: NDArray[np.float64]
    hashes: Rows
    """(R, n): of the words."""
    lines: Rows
    """Where in the file each stands."""
    words: list[str]
    """Of unigrams, the words themselves."""


class _File:
    """The bytes of an ARPA file, and where in it things are."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.map = _bytes_of(path)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:  # ValueError: an empty file
            raise UserError(f"cannot read {path}: {error}.") from None
        self.data: Bytes = np.frombuffer(self.map, np.uint8)

    def fault(self, line: int, reason: str) -> UserError:
        return UserError(f"{self.path}, line {line}: {reason} Write the file anew with the program that made it.")

    def sections(self) -> list[Section]:
        """The sections that the head announces, each where it should be."""
        announced: list[int] = []
        sections: list[Section] = []
        for title, line, start, stop in self._parts():
            n = len(sections) + 1
            wanted = "\\data\\" if not announced else f"\\{n}-grams:" if n <= len(announced) else "\\end\\"
            if title != wanted:
                raise self.fault(line, f"expected {wanted} here.")
            if title == "\\end\\":
                return sections
            if title == "\\data\\":
                announced = [int(count) for count in re.findall(rb"ngram\s+\d+\s*=\s*(\d+)", self.map[start:stop])]
            else:
                sections.append(Section(n, announced[n - 1], line + 1, start, stop))
        raise self.fault(
            1 + self._newlines(0, len(self.data)), "there is no \\end\\: the file is cut short or not ARPA."
        )

    def _parts(self) -> Iterator[tuple[str, int, int, int]]:
        """Titles, with their lines and where what stands below them begins and ends."""
        mark = max(self.map.find(b"\\data\\"), 0)
        line = 1 + self._newlines(0, mark)
        while mark < len(self.data):
            title, _, _ = self.map[mark : mark + 80].partition(b"\n")
            stop = self.map.find(b"\n\\", mark) + 1 or len(self.data)
            yield title.decode(errors="replace").strip(), line, mark + len(title) + 1, stop
            line += self._newlines(mark, stop)
            mark = stop

    def parse(self, section: Section) -> Fields:
        """The fields of a section's lines."""
        start, line = section.start, section.line
        found = [self._chunk(section.n, line, self.data[:0])]
        while start < section.stop:
            stop = 1 + self.map.rfind(b"\n", start, min(start + CHUNK, section.stop))  # whole lines
            if not stop:
                raise self.fault(line, f"the line is longer than {CHUNK:,} bytes.")
            found.append(self._chunk(section.n, line, self.data[start:stop]))
            line += self._newlines(start, stop)
            start = stop
        fields = Fields(
            np.concatenate([part.log_prob for part in found]),
            np.concatenate([part.back_off for part in found]),
            np.concatenate([part.hashes for part in found]),
            np.concatenate([part.lines for part in found]),
            [word for part in found for word in part.words],
        )
        if len(fields.lines) != section.count:
            n = section.n
            raise self.fault(section.line, f"{section.count} {n}-grams are announced, but {len(fields.lines)} follow.")
        return fields

    def _chunk(self, n: int, line: int, text: Bytes) -> Fields:
        inside = np.concatenate([[False], text > BLANK, [False]])
        starts = np.flatnonzero(inside[1:-1] & ~inside[:-2])
        ends = np.flatnonzero(inside[1:-1] & ~inside[2:]) + 1
        upto = np.searchsorted(starts, np.flatnonzero(text == NEWLINE))  # fields before the end of each line
        first, many = np.append(0, upto[:-1]), np.diff(upto, prepend=0)
        lines = line + np.flatnonzero(many)
        first, many = first[many > 0], many[many > 0]
        wrong = (many != n + 1) & (many != n + 2)
        if wrong.any():
            raise self.fault(lines[wrong][0], f"expected a number, {n} words and perhaps a back-off weight.")

        def logs(at: Rows, of: Rows) -> NDArray[np.float64]:
            numbers = _numbers(text, starts[at], ends[at])
            if np.isnan(numbers).any():
                raise self.fault(of[np.isnan(numbers)][0], "there is no number where one is expected.")
            return np.where(numbers <= NO_MASS, -np.inf, numbers * LN10)

        back_off, weighted = np.zeros(len(first)), many == n + 2
        back_off[weighted] = logs(first[weighted] + n + 1, lines[weighted])
        words = first[:, None] + 1 + np.arange(n)
        spelled = []
        if n == 1:
            spelled = [self._word(text[starts[w] : ends[w]], int(at)) for (w,), at in zip(words, lines, strict=True)]
        return Fields(logs(first, lines), back_off, _hashes(text, starts, ends)[words], lines, spelled)

    def _word(self, spelled: Bytes, line: int) -> str:
        try:
            return spelled.tobytes().decode()
        except UnicodeDecodeError as error:
            raise self.fault(line, f"the word is not UTF-8: {error.reason}.") from None

    def _newlines(self, start: int, stop: int) -> int:
        return int(np.count_nonzero(self.data[start:stop] == NEWLINE))


def _bytes_of(path: Path) -> mmap.mmap | bytes:
    """What a file holds, mapped where it is plain."""
    if path.suffix in (".gz", ".xz"):
        with (gzip.open if path.suffix == ".gz" else lzma.open)(path) as packed:
            return bytes(packed.read())
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _numbers(text: Bytes, starts: Rows, ends: Rows) -> NDArray[np.float64]:
    """The numbers that some fields spell, NaN where they spell none."""
    width = int((ends - starts).max(initial=1))
    at = starts[:, None] + np.arange(width)
    characters = np.where(at < ends[:, None], text.take(at, mode="clip"), 0).astype(np.uint8)  # (R, width)
    minus, dots, digits = characters[:, 0] == ord("-"), characters == ord("."), characters - np.uint8(ord("0"))
    is_digit = digits <= 9
    value, after, beyond = np.zeros(len(starts)), np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    for digit, real, dot in zip(digits.T, is_digit.T, dots.T, strict=True):
        value = np.where(real, value * 10 + digit, value)
        after += real & beyond
        beyond |= dot
    value = np.where(minus, -value, value) / 10.0**after
    plain = (is_digit.sum(1) + dots.sum(1) + minus == ends - starts) & (dots.sum(1) <= 1) & is_digit.any(1)
    for row in np.flatnonzero(~plain):  # exponents, inf
        value[row] = _number(characters[row].tobytes().rstrip(b"\0"))
    return value


def _number(spelled: bytes) -> float:
    try:
        return float(spelled)
    except ValueError:
        return math.nan


def _hashes(text: Bytes, starts: Rows, ends: Rows) -> Rows:
    """A polynomial of the bytes of each field, modulo 2 ** 64: a difference of running sums, moved to the origin."""
    powers, inverse = _powers()
    running = np.concatenate([[np.uint64(0)], np.cumsum(text * powers[: len(text)], dtype=np.uint64)])
    return ((running[ends] - running[starts]) * inverse[starts]).view(np.int64)


@functools.cache
def _powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Powers of an odd number and of its inverse modulo 2 ** 64."""
    inverse = np.uint64(pow(int(BASE), -1, 2**64))
    return np.cumprod(np.full(CHUNK, BASE), dtype=np.uint64), np.cumprod(np.full(CHUNK, inverse), dtype=np.uint64)


class _Lookup:
    """From hashes of words to ids: a table by the first bits answers most, a search in sorted hashes the rest."""

    def __init__(self, hashes: Rows, ids: Rows):
        order = np.argsort(hashes, kind="stable")
        self.hashes, self.ids = hashes[order], ids[order]
        again = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        self.twice = int(order[again + 1].min()) if len(again) else None
        """The place of a word that was given before, if there is one."""
        self.shift = np.uint64(64 - len(hashes).bit_length() - 3)
        self.table = np.zeros(1 << int(64 - self.shift), np.int64)
        self.table[self._slots(self.hashes)] = np.arange(len(hashes))

    def __call__(self, hashes: Rows) -> Rows:
        """Ids, ABSENT where no word has the hash."""
        place = self.table[self._slots(hashes)]
        missed = self.hashes[place] != hashes
        place[missed] = search(self.hashes, hashes[missed])
        return np.where(place == ABSENT, ABSENT, self.ids[place])

    def _slots(self, hashes: Rows) -> Rows:
        return (hashes.view(np.uint64) >> self.shift).view(np.int64)


def _vocabulary(words: list[str]) -> tuple[list[str], Rows]:
    """All tokens by id, and the ids of the words."""
    names, ids = list(SPECIALS), []
    for word in words:
        if word in SPELT:
            ids.append(SPELT[word])
        else:
            ids.append(len(names))
            names.append(_plain(word))
    return names, np.array(ids)


def _plain(word: str) -> str:
    """The word that `arpa_names` spelled so; bytes of other programs that are no text stay spelled out."""
    if RESERVED.fullmatch(word):
        word = word.removeprefix("\\")
    return re.sub(r"(<0x[0-9A-F]{2}>)+", lambda run: _spelled(run[0]), word)


def _spelled(run: str) -> str:
    try:
        return bytes.fromhex(run[3:-1].replace("><0x", "")).decode()
    except UnicodeDecodeError:
        return run


def _unigram_level(fields: Fields, ids: Rows, vocabulary: int, orders: int) -> Level:
    log_prob, back_off = np.full(vocabulary, -np.inf, np.float32), np.zeros(vocabulary, np.float32)
    log_prob[ids], back_off[ids] = fields.log_prob, fields.back_off
    log_prob[SPELT["<s>"]] = -np.inf  # never predicted, whatever number stands there
    return Level(np.arange(vocabulary), log_prob, back_off if orders > 1 else None, None)


def _level(file: _File, fields: Fields, words: Rows, levels: list[Level], vocabulary: int, *, top: bool) -> Level:
    prefix = words[:, 0]
    for level, column in zip(levels[1:], words.T[1:-1], strict=True):
        prefix = level.find(prefix, column, vocabulary)
    if (prefix == ABSENT).any():
        raise file.fault(
            fields.lines[prefix == ABSENT][0], "what comes before the last word is not an n-gram of the file."
        )
    key = prefix * vocabulary + words[:, -1]
    order = np.argsort(key, kind="stable")
    again = key[order][1:] == key[order][:-1]
    if again.any():
        raise file.fault(fields.lines[order[1:][again]].min(), "the n-gram stands twice.")
    log_prob, back_off = (logs[order].astype(np.float32) for logs in (fields.log_prob, fields.back_off))
    return Level(key[order], log_prob, None if top else back_off, None)
