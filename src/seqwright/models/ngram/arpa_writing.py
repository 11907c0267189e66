"""ARPA writer: the exchange format of back-off n-gram models, vectorized over n-grams.

Logarithms are base 10 in the file and natural everywhere else; -99 stands for log10 of zero, as in SRILM.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.core.storage import sweep, write_chunks
from seqwright.models.ngram.counting import Ints
from seqwright.models.ngram.smoothing import LogProbs
from seqwright.models.ngram.tables import Level, Tables

Bytes = NDArray[np.uint8]

LOG10_ZERO = -99.0
DECIMALS = 7
LINES = 1 << 16
"""Lines formatted at a time."""
LN10 = np.log(10.0)
ESCAPED = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]|<(?=0x[0-9A-F]{2}>)")
"""What is written as byte escapes: white space and control characters, which delimit columns; bytes that are not UTF-8,
which Python holds as surrogates; and text that looks like an escape."""
RESERVED = re.compile(r"\\*(<s>|</s>|<unk>|<UNK>)\Z")
"""Spellings of special tokens, bare or behind backslashes; ordinary tokens that match get one more backslash."""


def arpa_names(tokens: Sequence[str], vocabulary: Vocabulary) -> list[str]:
    """Names of the ids in an ARPA file: <s> </s> <unk>, and white space inside tokens as byte escapes (`<0x20>`).

    A token that has the name of an earlier one (`a` and the byte 0x61 of SentencePiece) is escaped whole.
    """
    names: dict[str, None] = {}  # in order of ids
    reserved = {vocabulary.sos: "<s>", vocabulary.eos: "</s>", vocabulary.unk: "<unk>"}
    for id, token in enumerate(tokens):
        name = reserved.get(id) or _escape(token)
        name = _byte_escapes(token) if name in names else name
        if name in names or not name:
            raise UserError(
                f"an ARPA file needs unique, non-empty token names, but {name!r} would name two of them;"
                " train with a tokenizer whose tokens differ."
            )
        names[name] = None
    return list(names)


def _escape(token: str) -> str:
    name = ESCAPED.sub(lambda match: _byte_escapes(match[0]), token)
    return f"\\{name}" if RESERVED.fullmatch(name) else name  # a word like "<unk>"


def _byte_escapes(text: str) -> str:
    return "".join(f"<0x{byte:02X}>" for byte in text.encode(errors="surrogateescape"))


def write_arpa(path: Path, tables: Tables, names: Sequence[str], vocabulary: Vocabulary) -> None:
    """Writes the tables as ARPA, gzipped where the path ends in .gz; `names` come from `arpa_names`."""
    sweep(path)
    sections = _sections(tables, names, vocabulary)
    write_chunks(path, _gzipped(sections) if path.suffix == ".gz" else sections)


def _gzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(wbits=31)  # 16 + 15: gzip header
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _sections(tables: Tables, names: Sequence[str], vocabulary: Vocabulary) -> Iterator[bytes]:
    """The header, the n-grams of each order, and \\end\\."""
    encoded = np.array([name.encode() for name in names])
    spelling = encoded.view(np.uint8).reshape(len(names), -1)  # (V, widest), zeros after the end
    widths = np.char.str_len(encoded)
    # <s> is never predicted but starts contexts, so it gets a line; other ids of probability zero (<pad>) get none.
    listed = np.isfinite(tables.levels[0].log_prob)
    if vocabulary.sos is not None:
        listed[vocabulary.sos] = True
    rows = [np.flatnonzero(listed), *(np.arange(len(level.key)) for level in tables.levels[1:])]
    counts = [f"ngram {n}={len(r)}\n" for n, r in enumerate(rows, 1)]
    yield ("\\data\\\n" + "".join(counts)).encode()
    for n, level in enumerate(tables.levels):
        yield f"\n\\{n + 1}-grams:\n".encode()
        for start in range(0, len(rows[n]), LINES):
            chunk = rows[n][start : start + LINES]
            words = tables.ngram_ids(n, chunk)
            yield _lines(level, chunk, [spelling[w, : widths[w].max()] for w in words.T])
    yield b"\n\\end\\\n"


def _lines(level: Level, rows: Ints, words: list[Bytes]) -> bytes:
    """Lines of a section: fixed-width byte columns concatenated, then the zero padding removed (no name has a zero)."""

    def column(character: str) -> Bytes:
        return np.full((len(rows), 1), ord(character), np.uint8)

    parts = [_decimal(level.log_prob[rows])]
    for n, word in enumerate(words):
        parts += [column(" " if n else "\t"), word]
    if level.back_off is not None:
        parts += [column("\t"), _decimal(level.back_off[rows])]
    flat = np.concatenate([*parts, column("\n")], axis=1).ravel()
    return flat[flat != 0].tobytes()


def _decimal(logs: LogProbs) -> Bytes:
    """Natural logarithms formatted to base 10: (R,) -> (R, 11) ASCII characters, zero where there is none."""
    value = np.maximum(logs.astype(float) / LN10, LOG10_ZERO)
    scaled = np.rint(np.abs(value) * 10**DECIMALS).astype(np.int64)
    characters = np.empty((len(logs), DECIMALS + 4), np.uint8)
    for position in range(DECIMALS):
        scaled, digit = np.divmod(scaled, 10)
        characters[:, -1 - position] = digit + ord("0")
    tens, ones = np.divmod(scaled, 10)
    characters[:, 0] = np.where(value < 0, ord("-"), 0)
    characters[:, 1] = np.where(tens > 0, tens + ord("0"), 0)
    characters[:, 2] = ones + ord("0")
    characters[:, 3] = ord(".")
    return characters
