"""Streaming reader of large text files: blocks in bounded memory that encode to the same ids as the whole file."""

from __future__ import annotations

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit
from seqwright.data.columnar import MissingExtraError, row_blocks
from seqwright.data.files import (
    BYTE_ORDER_MARK,
    COLUMNAR,
    COMPRESSED,
    CONVERT,
    MAX_DECOMPRESSED,
    EmptyFileError,
    plain_suffix,
    refuse_blank,
)
from seqwright.data.records import (
    DELIMITERS,
    QUOTING_LINES,
    RECORD_SUFFIXES,
    holds_records,
    is_quoted,
    record_ends,
    records,
)
from seqwright.data.text.corpus import Corpus, Document, corpus_of, read_each, texts_of

BLOCK = 8 << 20
"""Default block size in bytes."""

Skipped = Callable[[str], None]
"""Called with the reason why a file, or the rest of it, is left out."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a file."""

    path: Path
    text: str
    first: bool
    """Whether it is the first of its file."""
    line: int
    """Number of its first line."""
    header: str = ""
    """First record of the table, for all blocks but the first."""
    quoted: bool = False
    """Whether the cells of a .tsv file are quoted."""

    def corpus(self, kind: Document, columns: Sequence[str]) -> Corpus:
        """The documents of the block, or a part of one where the whole file is the document."""
        if holds_records(self.path):
            suffix = plain_suffix(self.path)
            delimiter = DELIMITERS.get(suffix)
            suffix = ".jsonl" if suffix in COLUMNAR else ".csv" if self.quoted else suffix
            given: dict[str, Any] = {"line": self.line, "header": self.header, "suffix": suffix, "delimiter": delimiter}
            rows = records(self.text, self.path, columns, **given)
            return Corpus(documents=list(texts_of(rows, self.path, columns)), kind=kind)
        return corpus_of(self.text, kind)


@dataclass(frozen=True)
class Blocks(Collection[str]):
    """The texts of the blocks of files, re-read from disk on every iteration."""

    paths: Sequence[Path]
    kind: Document
    columns: Sequence[str]
    every: int = 1
    """Stride: only every n-th block, a sample spread over all files."""
    size: int = BLOCK
    skipped: Skipped | None = None

    def __iter__(self) -> Iterator[str]:
        for number, block in enumerate(all_blocks(self.paths, self.kind, self.size, self.skipped)):
            if number % self.every == 0:
                yield from block.corpus(self.kind, self.columns).documents

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, text: object) -> bool:
        return any(text == other for other in self)


def all_blocks(
    paths: Sequence[Path],
    kind: Document,
    size: int = BLOCK,
    skipped: Skipped | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Block]:
    """The blocks of files; those without text are left out with a note, as when they are read at once."""
    return read_each(paths, lambda path: blocks(path, kind, size, skipped), note)


def blocks(path: Path, kind: Document, size: int = BLOCK, skipped: Skipped | None = None) -> Iterator[Block]:
    """A file as blocks of about `size` bytes, cut where no document and no token is split.

    `skipped` is called with the reason where the file cannot be read any further, and its rest is left out.
    """
    try:
        yield from _blocks(path, kind, size)
    except UserError as error:
        if skipped is None or isinstance(error, MissingExtraError | EmptyFileError):
            raise
        skipped(str(error))


def _blocks(path: Path, kind: Document, size: int) -> Iterator[Block]:
    suffix = plain_suffix(path)
    if suffix in COLUMNAR:
        first = True
        for row, text in row_blocks(path, size):
            yield Block(path=path, text=text, first=first, line=row)
            first = False
        if first:
            refuse_blank("", path)
        return
    cut = _before_word if kind == "file" and suffix not in RECORD_SUFFIXES else _after_document
    separator = "\n\n" if kind == "blank-line" else "\n"
    buffer, first, line, header = "", True, 1, ""
    quoted = suffix == ".tsv" and is_quoted(_first_lines(path, size))
    csv = suffix == ".csv" or quoted
    for text in _decoded(path, size) if suffix in DELIMITERS else _normalized(_decoded(path, size)):
        buffer += text
        if path.suffix in COMPRESSED:
            check_limit(MAX_DECOMPRESSED, len(buffer), f"{path} has a document of {len(buffer):,} characters")
        end = _after_record(buffer, path, line, DELIMITERS[suffix]) if csv else cut(buffer, separator)
        if end and not (first and buffer[:end].isspace()):  # a first block has text, or its file has none
            yield Block(path=path, text=buffer[:end], first=first, line=line, header=header, quoted=quoted)
            if first and suffix in DELIMITERS:
                ends = record_ends(buffer, path, 1, DELIMITERS[suffix])
                header = buffer[: next(ends) if csv else buffer.index("\n") + 1]
            line += buffer.count("\n", 0, end)
            buffer, first = buffer[end:], False
    if first:
        refuse_blank(buffer, path)
    if buffer:
        yield Block(path=path, text=buffer, first=first, line=line, header=header, quoted=quoted)


def _first_lines(path: Path, size: int) -> str:
    """The lines of a file that tell whether it is quoted, and some more."""
    text = ""
    for more in _decoded(path, size):
        text += more
        if text.count("\n") > QUOTING_LINES:
            break
    return text


def _after_record(text: str, path: Path, line: int, delimiter: str) -> int:
    """The end of the last record but one: the last may continue in the next block."""
    previous, last = 0, 0
    for end in record_ends(text, path, line, delimiter):
        previous, last = last, end
    return previous


def _after_document(text: str, separator: str) -> int:
    return text.rfind(separator) + len(separator) if separator in text else 0


def _before_word(text: str, separator: str) -> int:
    """The last offset where white space follows a non-space: no tokenizer of ours merges across it
    (`text/tokenizer.py`)."""
    offset = max(text.rfind(" "), text.rfind("\n"))
    while offset > 0 and (text[offset - 1].isspace() or text[offset] not in " \n"):
        offset -= 1
    return max(0, offset)


def _normalized(texts: Iterator[str]) -> Iterator[str]:
    """The chunks with CRLF read as LF, also across chunk boundaries."""
    pending = ""
    for text in texts:
        text = pending + text
        pending = "\r" if text.endswith("\r") else ""
        yield text.removesuffix("\r").replace("\r\n", "\n")
    yield pending


def _decoded(path: Path, size: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with _opened(path) as file:
        while data := file.read(size):
            if b"\0" in data:
                offset = read + data.index(0)
                raise UserError(f"{path} looks binary or UTF-16: NUL at byte {offset:,}; {CONVERT}")
            try:
                text = decoder.decode(data)
            except UnicodeDecodeError as error:
                raise UserError(f"{path} is not UTF-8 near byte {read + error.start:,}; {CONVERT}") from error
            yield text if read else text.removeprefix(BYTE_ORDER_MARK)
            read += len(data)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at its very end; {CONVERT}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    opener: Any = COMPRESSED.get(path.suffix, open)
    try:
        with opener(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} cannot be decompressed ({error}): it is damaged, or no {path.suffix} file.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
