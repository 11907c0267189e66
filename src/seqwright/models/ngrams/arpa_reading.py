"""Reading ARPA files, ours, KenLM's and SRILM's, with no loop over n-grams; a fault is named by its line.

A section is cut into fields where its bytes turn from blank to not; words are recognised by a 64-bit polynomial of
their bytes, whose values for the vocabulary are checked to be distinct.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from seqwright.config import UserError
from seqwright.models.ngrams.arpa_writing import LN10, NO_MASS, Bytes
from seqwright.models.ngrams.counting import Rows
from seqwright.models.ngrams.tables import ABSENT, Level, Tables, search

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
    announced, sections = file.sections()
    unigrams = file.parse(1, *sections[0], keep_words=True)
    names, ids = _vocabulary(unigrams.words)
    lookup = np.argsort(unigrams.hashes[:, 0])
    hashes = unigrams.hashes[lookup, 0]
    if (hashes[1:] == hashes[:-1]).any():
        twice = lookup[1:][hashes[1:] == hashes[:-1]].min()
        file.complain(unigrams.lines[twice], f"'{unigrams.words[twice]}' stands twice among the 1-grams.")
    levels = [_unigram_level(unigrams, ids, len(names), len(sections))]
    for n, section in enumerate(sections[1:], 2):
        fields = file.parse(n, *section)
        place = search(hashes, fields.hashes.ravel()).reshape(-1, n)
        if (place == ABSENT).any():
            file.complain(fields.lines[(place == ABSENT).any(1)][0], "a word is not among the 1-grams.")
        levels.append(_level(file, fields, ids[lookup[place]], levels, len(names), top=n == len(sections)))
    for n, (level, count) in enumerate(zip(levels[1:], announced[1:], strict=True), 2):
        if len(level.key) != count:
            file.complain(sections[n - 1][0], f"\\data\\ announces {count} {n}-grams, but {len(level.key)} follow.")
    return Tables(levels, len(names)), names


@dataclass(frozen=True)
class Fields:
    """The lines of a section."""

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
            self.data: Bytes = np.fromfile(path, np.uint8)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}.") from None

    def complain(self, line: int, reason: str) -> NoReturn:
        raise UserError(f"{self.path}, line {line}: {reason} Write the file anew with the program that made it.")

    def line(self, at: int) -> int:
        return 1 + int(np.count_nonzero(self.data[:at] == NEWLINE))

    def sections(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        """The announced counts, and of each order: line number, first byte and end of its lines."""
        marks = np.flatnonzero(self.data == ord("\\"))
        marks = marks[(marks == 0) | (self.data[marks - 1] == NEWLINE)]
        announced: list[int] = []
        sections: list[tuple[int, int, int]] = []
        ends = [*marks[1:], len(self.data)]
        for mark, end in zip(marks.tolist(), ends, strict=True):
            title, _, body = self.data[mark : min(end, mark + 4096)].tobytes().partition(b"\n")
            start = mark + len(title) + 1
            title = title.strip()
            if title == b"\\data\\":
                announced = [int(count) for count in re.findall(rb"ngram\s+\d+\s*=\s*(\d+)", body)]
            elif title == b"\\end\\":
                break
            elif title == b"\\%d-grams:" % (len(sections) + 1):
                sections.append((self.line(start), start, int(end)))
            else:
                self.complain(self.line(mark), f"expected \\{len(sections) + 1}-grams: or \\end\\.")
        else:
            self.complain(self.line(len(self.data)), "there is no \\end\\: the file is cut short or not ARPA.")
        if not sections or len(sections) != len(announced):
            self.complain(1, f"\\data\\ announces {len(announced)} orders, but {len(sections)} follow.")
        return announced, sections

    def parse(self, n: int, line: int, start: int, end: int, *, keep_words: bool = False) -> Fields:
        """The fields of a section's lines."""
        found = []
        while start < end:
            stop = min(start + CHUNK, end)
            if stop < end:  # up to the end of a line
                stop = start + 1 + int(np.flatnonzero(self.data[start:stop] == NEWLINE)[-1])
            found.append(self._chunk(n, line, self.data[start:stop], keep_words))
            line += int(np.count_nonzero(self.data[start:stop] == NEWLINE))
            start = stop
        columns = ([getattr(part, name) for part in found] for name in ("log_prob", "back_off", "hashes", "lines"))
        return Fields(*map(np.concatenate, columns), [word for part in found for word in part.words])

    def _chunk(self, n: int, line: int, text: Bytes, keep_words: bool) -> Fields:
        inside = np.concatenate([[False], text > BLANK, [False]])
        starts = np.flatnonzero(inside[1:-1] & ~inside[:-2])
        ends = np.flatnonzero(inside[1:-1] & ~inside[2:]) + 1
        on = np.cumsum(text == NEWLINE)[starts]  # the line of each field
        lines, first, many = np.unique(on, return_index=True, return_counts=True)
        wrong = (many != n + 1) & (many != n + 2)
        if wrong.any():
            self.complain(line + lines[wrong][0], f"expected a number, {n} words and perhaps a back-off weight.")

        def numbers(fields: Rows) -> NDArray[np.float64]:
            width = int((ends - starts)[fields].max(initial=1))
            at = starts[fields, None] + np.arange(width)
            padded = np.where(at < ends[fields, None], text.take(at, mode="clip"), 0).astype(np.uint8)
            try:
                logs = padded.view(f"S{width}")[:, 0].astype(float)
            except ValueError as error:
                self.complain(line + on[fields[0]], f"here or soon after: {error}.")
            return np.where(logs <= NO_MASS, -np.inf, logs * LN10)

        back_off = np.zeros(len(first))
        back_off[many == n + 2] = numbers(first[many == n + 2] + n + 1)
        words = first[:, None] + 1 + np.arange(n)
        spelt = [text[starts[w] : ends[w]].tobytes().decode() for w in words[:, 0]] if keep_words else []
        return Fields(numbers(first), back_off, _hashes(text, starts, ends)[words], line + lines, spelt)


def _hashes(text: Bytes, starts: Rows, ends: Rows) -> Rows:
    """A polynomial of the bytes of each field, modulo 2 ** 64: a difference of running sums, moved to the origin."""
    powers, inverse = _powers()
    running = np.concatenate([[np.uint64(0)], np.cumsum(text * powers[: len(text)], dtype=np.uint64)])
    return ((running[ends] - running[starts]) * inverse[starts]).view(np.int64)


@functools.cache
def _powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Powers of an odd number and of its inverse modulo 2 ** 64."""
    inverse = np.uint64(pow(int(BASE), -1, 2**64))
    return tuple(np.cumprod(np.full(CHUNK, base), dtype=np.uint64) for base in (BASE, inverse))


def _vocabulary(words: list[str]) -> tuple[list[str], Rows]:
    """All tokens by id, and the ids of the words."""
    names, ids = list(SPECIALS), []
    for word in words:
        if word in SPELT:
            ids.append(SPELT[word])
        else:
            ids.append(len(names))
            names.append(_spaces(word))
    return names, np.array(ids)


def _spaces(word: str) -> str:
    """The word with the bytes that `arpa_names` spelt out as characters again."""
    return re.sub(r"(<0x[0-9A-F]{2}>)+", lambda run: bytes.fromhex(run[0][3:-1].replace("><0x", "")).decode(), word)


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
        file.complain(
            fields.lines[prefix == ABSENT][0], "what comes before the last word is not an n-gram of the file."
        )
    key = prefix * vocabulary + words[:, -1]
    order = np.argsort(key, kind="stable")
    again = key[order][1:] == key[order][:-1]
    if again.any():
        file.complain(fields.lines[order[1:][again]].min(), "the n-gram stands twice.")
    log_prob, back_off = (logs[order].astype(np.float32) for logs in (fields.log_prob, fields.back_off))
    return Level(key[order], log_prob, None if top else back_off, None)
