"""Opening files that may be damaged or hostile: regular files only, never through a link, errors name them."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from seqwright.core.config import UserError


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A file descriptor of a regular file; a link, FIFO, device or folder is a UserError."""
    try:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(_irregular(path, "a link")) from None
        raise
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise UserError(_irregular(path, _kind(mode)))
    return handle


def refuse_irregular(folder: Path) -> None:
    """Raises UserError where a folder holds a link, FIFO, socket or device at any depth."""
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # a temporary file of a process that writes here
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UserError(_irregular(path, _kind(mode)))


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """Size and sha256 of a file."""

    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path, size: int | None = None) -> FileRecord:
        """The record of a file, or of its first `size` bytes; reads about a gigabyte per second."""
        digest, left = hashlib.sha256(), math.inf if size is None else size
        with read_errors(path), os.fdopen(open_regular(path), "rb") as file:
            while left > 0 and (chunk := file.read(int(min(left, 1 << 20)))):
                digest.update(chunk)
                left -= len(chunk)
            return cls(size=file.tell(), sha256=digest.hexdigest())

    @classmethod
    def of_text(cls, text: str) -> FileRecord:
        """The record that `write_text` leaves."""
        data = text.encode()
        return cls(size=len(data), sha256=hashlib.sha256(data).hexdigest())


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turns errors of a missing, unreadable or damaged `path` into a UserError."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Restore it from a copy, or train again.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}. It should be a file with read permission.") from None
    except (ValueError, RecursionError, SafetensorError) as error:  # ValueError: JSON, TOML and UTF-8
        raise UserError(f"{path} is damaged: {error}. Restore it from a copy, or train again.") from None


def _irregular(path: Path, kind: str) -> str:
    return f"{path} is {kind}; runs and prepared data hold regular files only. Put a copy of the file in its place."


def _kind(mode: int) -> str:
    return "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a FIFO, socket or device"
