"""Lines of files and of standard input, decoded as they arrive: they may be larger than memory."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from seqwright.core.config import UserError
from seqwright.core.limits import check_limit, limit
from seqwright.core.warning import warn
from seqwright.data.files import (
    BYTE_ORDER_MARK,
    COMPRESSED,
    CONVERT,
    MAX_DECOMPRESSED,
    REPLACE,
    REPLACEMENT,
    UTF_8,
    UTF_16_MARKS,
    Errors,
    check_encoding,
    is_utf8,
    likely_encoding,
    naming_errors,
    refuse_binary,
)


def lines_of(path: Path, encoding: str | None = None, errors: Errors = "strict") -> Iterator[str]:
    """Lines of a file without their endings (LF or CRLF), read lazily: the file may be larger than memory."""
    opener: Callable[..., IO[bytes]] = COMPRESSED.get(path.suffix, open)
    decoder = LineDecoder(str(path), encoding, errors)
    with naming_errors(path), opener(path, "rb") as file:
        for raw in _limited_lines(file, path) if path.suffix in COMPRESSED else file:
            yield from decoder.feed(raw)
        yield from decoder.finish()


def line_style(path: Path) -> tuple[str, str]:
    """The byte order mark of a file, or none, and its line end (LF or CRLF), by its first line."""
    with naming_errors(path), COMPRESSED.get(path.suffix, open)(path, "rb") as file:
        first = file.readline(limit(MAX_DECOMPRESSED))
    mark = BYTE_ORDER_MARK if first.startswith(codecs.BOM_UTF8) else ""
    return mark, "\r\n" if first.endswith(b"\r\n") else "\n"


class LineDecoder:
    """Bytes that arrive in blocks, as lines of text without their endings (LF or CRLF) and without a byte order mark.

    `encoding` is that of the training files; None is UTF-8 of a command that reads no [data] table. Standard input
    (`piped`) may as well be typed at a terminal: there, lines that are valid UTF-8 are read as such (decision 207).
    """

    def __init__(
        self, source: str, encoding: str | None = None, errors: Errors = "strict", *, piped: bool = False
    ) -> None:
        self.source, self.encoding, self.errors, self.piped = source, encoding or UTF_8, errors, piped
        self.settable = encoding is not None
        self.is_utf8 = check_encoding(self.encoding).startswith(UTF_8)
        self.number = 0
        """Lines so far."""
        self.rest = b""
        """The beginning of a line whose end has not arrived."""
        self.warned = False
        # In UTF-16 and UTF-32 other characters hold the byte of a line feed, too: decoded first, then split.
        wide = not self.is_utf8 and "\n".encode(self.encoding) != b"\n"
        self.wide = codecs.getincrementaldecoder(self.encoding)(errors) if wide else None

    def feed(self, block: bytes) -> list[str]:
        """The lines that end in this block."""
        if self.number == 0 and not self.rest:
            refuse_binary(block, self.source)
            marked = block.startswith(codecs.BOM_UTF8)
            block = block.removeprefix(codecs.BOM_UTF8)
            typed = self.piped and not block.startswith(UTF_16_MARKS) and 0 not in block
            if marked or (self.wide and typed):
                self.is_utf8, self.wide = True, None
            if self.wide is None and block.startswith(UTF_16_MARKS):
                move = "add --set data.encoding=utf-16" if self.settable else "save it as UTF-8"
                raise UserError(f"{self.source} is UTF-16, as spreadsheets write it; {move}.")
            if self.wide is not None:
                self._warn_of_utf8(block)
        *raws, self.rest = (self.rest + self._narrow(block)).split(b"\n")
        return [self._decoded(raw) for raw in raws]

    def finish(self) -> list[str]:
        """The last line, if it has no line end."""
        rest = self.rest + self._narrow(b"", final=True)
        self.rest = b""
        return [self._decoded(rest)] if rest else []

    def _narrow(self, block: bytes, *, final: bool = False) -> bytes:
        """UTF-16 and UTF-32 as UTF-8, which can be split at line feeds; all other bytes as they are."""
        if self.wide is None:
            return block
        try:
            text = self.wide.decode(block, final)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.source} is not {self.encoding.upper()} after line {self.number:,}; name its encoding, as in"
                f" --set data.encoding=utf-8. {REPLACE}"
            ) from error
        return text.encode("utf-8", "replace")

    def _decoded(self, raw: bytes) -> str:
        self.number += 1
        if self.is_utf8 or self.wide is not None or (self.piped and is_utf8(raw)):
            encoding = UTF_8
        else:
            encoding = self.encoding
            self._warn_of_utf8(raw)
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            if self.errors == "strict":
                raise self._undecodable(raw, error) from error
            text = raw.decode(encoding, "replace")
            self._warn("has bytes that are invalid; they are read as U+FFFD, and so are those of later lines")
        if self.wide is not None and self.number == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        return text.removesuffix("\r")

    def _warn_of_utf8(self, raw: bytes) -> None:
        if not self.warned and is_utf8(raw):
            self._warn(
                f"is valid UTF-8, but read as {self.encoding}; --set data.encoding=utf-8 reads it as UTF-8", self.source
            )

    def _warn(self, text: str, place: str = "") -> None:
        if not self.warned:
            self.warned = True
            warn(f"{place or f'{self.source}, line {self.number:,}'} {text}.")

    def _undecodable(self, raw: bytes, error: UnicodeDecodeError) -> UserError:
        byte = raw[error.start : error.start + 1]
        latin = byte.decode("cp1252", "replace")
        guess = f", which is {latin!r} in Latin-1" if latin.isprintable() and latin != REPLACEMENT else ""
        likely = likely_encoding(raw)
        likely = "cp1251" if likely in (None, self.encoding) else likely
        move = f"name its encoding, as in --set data.encoding={likely}. {REPLACE}"
        return UserError(
            f"{self.source}, line {self.number:,}: not {self.encoding.upper()} at byte {error.start + 1} of the line"
            f" (0x{byte.hex()}{guess}); {move if self.settable else f'save it as UTF-8, or {CONVERT}'}"
        )


def _limited_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    while line := file.readline(limit(MAX_DECOMPRESSED) + 1):
        check_limit(MAX_DECOMPRESSED, len(line), f"{path} has a line of {len(line):,} bytes or more")
        yield line
