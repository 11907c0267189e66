"""Large text files a block at a time, in bounded memory: each block is encoded as it would be in the whole."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from seqwright.core.config import UserError
from seqwright.data.files import BYTE_ORDER_MARK, plain_suffix
from seqwright.data.records import DELIMITERS, RECORDS, record_ends, records
from seqwright.data.text.corpus import Corpus, Document, corpus_of, texts_of

BLOCK = 8 << 20
"""Bytes read at once."""


@dataclass(frozen=True, kw_only=True)
class Block:
    path: Path
    text: str
    first: bool
    """Whether a file begins here."""
    line: int
    """The number of its first line."""
    mended: bool = False
    """Whether CR LF was read as LF up to here."""
    heading: str = ""
    """The first record of a table, where this is a later part of it."""

    def corpus(self, kind: Document, columns: Sequence[str]) -> Corpus:
        """What is encoded: documents, or a part of one where the whole file is the document."""
        if plain_suffix(self.path) in RECORDS:
            rows = records(self.text, self.path, columns, line=self.line, heading=self.heading)
            return Corpus(documents=list(texts_of(rows, self.path, columns)), kind=kind)
        own = corpus_of(self.text, kind)
        return replace(own, exact=own.exact and not self.mended)


@dataclass(frozen=True)
class Blocks(Collection[str]):
    """The texts of some files' blocks, read anew each time they are asked for."""

    paths: Sequence[Path]
    kind: Document
    columns: Sequence[str]
    every: int = 1
    """Only each so many-th block: a sample spread over all files."""
    size: int = BLOCK

    def __iter__(self) -> Iterator[str]:
        number = 0
        for path in self.paths:
            for block in blocks(path, self.kind, self.size):
                if number % self.every == 0:
                    yield from block.corpus(self.kind, self.columns).documents
                number += 1

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, text: object) -> bool:
        return any(text == own for own in self)


def blocks(path: Path, kind: Document, size: int = BLOCK) -> Iterator[Block]:
    """A file in parts of about `size` bytes, cut where neither a document nor a token can be cut in two."""
    suffix = plain_suffix(path)
    cut = _before_word if kind == "file" and suffix not in RECORDS else _after_document
    end = "\n\n" if kind == "blank-line" else "\n"
    held, first, line, mended, heading = "", True, 1, False, ""
    texts = ((text, False) for text in _decoded(path, size))
    for text, crlf in texts if kind == "file" or suffix in DELIMITERS else _line_ends(_decoded(path, size)):
        held += text
        mended |= crlf
        place = _after_record(held, path, line) if suffix == ".csv" else cut(held, end)
        if place:
            yield Block(path=path, text=held[:place], first=first, line=line, mended=mended, heading=heading)
            if first and suffix in DELIMITERS:
                heading = held[: next(record_ends(held, path, 1)) if suffix == ".csv" else held.index("\n") + 1]
            line += held.count("\n", 0, place)
            held, first = held[place:], False
    if held:
        yield Block(path=path, text=held, first=first, line=line, mended=mended, heading=heading)
    elif first:
        raise UserError(f"{path} is empty.")


def _after_record(text: str, path: Path, line: int) -> int:
    """The end of the last record that surely ends in this text: of all but the last, which may go on."""
    place, last = 0, 0
    for end in record_ends(text, path, line):
        place, last = last, end
    return place


def _after_document(text: str, end: str) -> int:
    return text.rfind(end) + len(end) if end in text else 0


def _before_word(text: str, end: str) -> int:
    """The last place where white space follows something else: no kind of ours joins the two (`text/tokenizer.py`)."""
    place = max(text.rfind(" "), text.rfind("\n"))
    while place > 0 and (text[place - 1].isspace() or text[place] not in " \n"):
        place -= 1
    return max(0, place)


def _line_ends(texts: Iterator[str]) -> Iterator[tuple[str, bool]]:
    """CR LF as LF, also where the two come in different parts, and whether there was any."""
    held = ""
    for text in texts:
        text = held + text
        held = "\r" if text.endswith("\r") else ""
        yield text.removesuffix("\r").replace("\r\n", "\n"), "\r\n" in text
    yield held, False


def _decoded(path: Path, size: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with _opened(path) as file:
        while data := file.read(size):
            if b"\0" in data:
                place = read + data.index(0)
                raise UserError(f"{path} looks binary or UTF-16: NUL at byte {place:,}; give a text file.")
            try:
                text = decoder.decode(data)
            except UnicodeDecodeError as error:
                raise UserError(f"{path} is not UTF-8 near byte {read + error.start:,}; give a text file.") from error
            yield text if read else text.removeprefix(BYTE_ORDER_MARK)
            read += len(data)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at its very end; give a text file.") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(path.suffix, open)(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} cannot be decompressed ({error}): it is damaged, or no {path.suffix} file.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
