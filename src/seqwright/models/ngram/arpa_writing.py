"""Writing ARPA files, the exchange format of n-gram models, with no loop over n-grams.

Logarithms are base 10 in the file and natural everywhere else; -99 stands for a probability of zero.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.core.storage import write_chunks
from seqwright.models.ngram.counting import Rows
from seqwright.models.ngram.tables import Level, Logs, Tables

Bytes = NDArray[np.uint8]

NO_MASS = -99.0
DECIMALS = 7
LINES = 1 << 16
"""Lines made at once."""
LN10 = np.log(10.0)
SPELT_OUT = re.compile(r"\s|<(?=0x[0-9A-F]{2}>)")
"""What cannot stand in a name as it is: white space, and what looks like white space spelled out."""
RESERVED = re.compile(r"\\*(<s>|</s>|<unk>|<UNK>)\Z")
"""A name that programs would take for a special, or that one backslash tells from it."""


def arpa_names(tokens: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """How ids are spelled in an ARPA file: <s> </s> <unk>, and spaces inside tokens as bytes (`<0x20>`)."""
    names = [SPELT_OUT.sub(lambda found: "".join(f"<0x{b:02X}>" for b in found[0].encode()), t) for t in tokens]
    names = [f"\\{name}" if RESERVED.fullmatch(name) else name for name in names]  # a word spelled like a special
    for id, name in ((vocabulary.sos, "<s>"), (vocabulary.eos, "</s>"), (vocabulary.unk, "<unk>")):
        if id is not None:
            names[id] = name
    for name, times in Counter(names).items():
        if times > 1 or not name:
            raise UserError(f"an ARPA file cannot tell tokens apart: {name!r} would name {times} of them.")
    return names


def write_arpa(path: Path, tables: Tables, names: Sequence[str], vocabulary: Vocabulary) -> None:
    """Writes a model, compressed where the name ends in .gz; `names` are those of `arpa_names`."""
    sections = _sections(tables, names, vocabulary)
    write_chunks(path, _gzipped(sections) if path.suffix == ".gz" else sections)


def _gzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)  # with gzip's header
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _sections(tables: Tables, names: Sequence[str], vocabulary: Vocabulary) -> Iterator[bytes]:
    encoded = np.array([name.encode() for name in names])
    spelling = encoded.view(np.uint8).reshape(len(names), -1)  # (V, widest), zeros after the end
    widths = np.char.str_len(encoded)
    # <s> is never predicted but begins contexts, so it has its line; what else has no mass has none.
    spoken = np.isfinite(tables.levels[0].log_prob)
    if vocabulary.sos is not None:
        spoken[vocabulary.sos] = True
    rows = [np.flatnonzero(spoken), *(np.arange(len(level.key)) for level in tables.levels[1:])]
    counts = [f"ngram {n}={len(r)}\n" for n, r in enumerate(rows, 1)]
    yield ("\\data\\\n" + "".join(counts)).encode()
    for n, level in enumerate(tables.levels):
        yield f"\n\\{n + 1}-grams:\n".encode()
        for start in range(0, len(rows[n]), LINES):
            some = rows[n][start : start + LINES]
            words = tables.words(n, some)
            yield _lines(level, some, [spelling[w, : widths[w].max()] for w in words.T])
    yield b"\n\\end\\\n"


def _lines(level: Level, rows: Rows, words: list[Bytes]) -> bytes:
    """Lines of a section: columns of bytes side by side, and zeros, which no name holds, dropped."""

    def column(character: str) -> Bytes:
        return np.full((len(rows), 1), ord(character), np.uint8)

    parts = [_decimal(level.log_prob[rows])]
    for n, word in enumerate(words):
        parts += [column(" " if n else "\t"), word]
    if level.back_off is not None:
        parts += [column("\t"), _decimal(level.back_off[rows])]
    flat = np.concatenate([*parts, column("\n")], axis=1).ravel()
    return flat[flat != 0].tobytes()


def _decimal(logs: Logs) -> Bytes:
    """Natural logarithms as decimal numbers to base 10: (R,) -> (R, 11) characters, zeros where there is none."""
    value = np.maximum(logs.astype(float) / LN10, NO_MASS)
    scaled = np.rint(np.abs(value) * 10**DECIMALS).astype(np.int64)
    characters = np.empty((len(logs), DECIMALS + 4), np.uint8)
    for place in range(DECIMALS):
        scaled, digit = np.divmod(scaled, 10)
        characters[:, -1 - place] = digit + ord("0")
    tens, ones = np.divmod(scaled, 10)
    characters[:, 0] = np.where(value < 0, ord("-"), 0)
    characters[:, 1] = np.where(tens > 0, tens + ord("0"), 0)
    characters[:, 2] = ones + ord("0")
    characters[:, 3] = ord(".")
    return characters
