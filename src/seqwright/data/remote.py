"""Remote files (fsspec: s3://, gs://, hf://, https://), and copies of them in the cache folder."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from seqwright.core.config import UserError
from seqwright.core.printable import first_line
from seqwright.core.storage import write_chunks
from seqwright.data.columnar import MissingExtraError, extra_module

CHUNK = 1 << 22
"""Bytes of a remote file in memory at a time."""


class SourceError(Exception):
    """A remote file cannot be read: no OSError, which would be taken for one of writing its copy."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a URL, and the path of its copy."""

    url: str
    files: Any
    """The file system of fsspec."""
    name: str
    path: Path

    def copy(self) -> None:
        """Copies the file, unless there is a copy of its size."""
        with read_errors(self.url):
            if not (self.path.exists() and self.path.stat().st_size == self.files.size(self.name)):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_chunks(self.path, read_chunks(self.files, self.name))


def remote_files(url: str, cache: Path) -> list[RemoteFile]:
    """The file, files or folder of a URL, in the order of their names; nothing is copied yet."""
    files, path = file_system(url)
    with read_errors(url):
        names = _names(files, path)
        if not names:
            raise FileNotFoundError("there is no such file")
        return [RemoteFile(url, files, name, cache / _key(url, name) / _file_name(name)) for name in names]


def file_system(url: str) -> tuple[Any, str]:
    """The file system of fsspec for a URL, and its path there."""
    fsspec = extra_module("fsspec.core", f"reading {url}")
    with read_errors(url):
        files, path = fsspec.url_to_fs(url)
        return files, str(path)


@contextmanager
def read_errors(url: str) -> Iterator[None]:
    """Turns errors of a file system into a UserError that names the URL."""
    try:
        yield
    except UserError:
        raise
    except ImportError as error:  # such as s3fs, or aiohttp of https://
        raise MissingExtraError(f"reading {url} needs another package: {first_line(error)}") from error
    except Exception as error:  # file systems of fsspec raise errors of the libraries that they are made of
        raise UserError(
            f"{url} cannot be read ({first_line(error)}). See its name, or your permission to read it."
        ) from error


def exists(files: Any, path: str) -> bool:
    """Whether there is a remote file. File systems say no as well where the server cannot be reached or refuses to
    answer: that is raised."""
    if files.exists(path):
        return True
    try:
        files.info(path)
    except Exception as error:  # FileNotFoundError of https:// whatever the cause
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        unreachable = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
        # aiohttp's errors of connections that are closed without an answer are no OSError.
        unreachable |= any(base.__name__ == "ClientConnectionError" for base in type(cause).__mro__)
        if unreachable or getattr(cause, "status", 404) not in (404, 410):
            raise cause from None
    return False


def read_chunks(files: Any, name: str, start: int = 0, size: int | None = None) -> Iterator[bytes]:
    """The bytes of a remote file from `start`, at most `size` of them, chunk by chunk."""
    left = sys.maxsize if size is None else size
    try:
        with files.open(name, "rb") as file:
            if start:  # not all file systems can seek
                file.seek(start)
            while left and (chunk := file.read(min(CHUNK, left))):
                yield chunk
                left -= len(chunk)
    except Exception as error:  # those of any library
        raise SourceError(first_line(error)) from error


def _names(files: Any, path: str) -> list[str]:
    if any(character in path for character in "*?["):
        return sorted(files.glob(path))
    return sorted(files.find(path)) if files.isdir(path) else [path] * exists(files, path)


def _file_name(name: str) -> str:
    """The name of a copy, whose suffix tells its format: without the query of a web address."""
    return PurePosixPath(urlsplit(name).path if "://" in name else name).name


def _key(url: str, name: str) -> str:
    """A folder for each remote file: files of different folders may have one name.

    fsspec's names lack the host of ftp://, the repository of github:// and the archive of zip://….zip::https://….
    """
    parts = urlsplit(url)
    return hashlib.sha256(f"{parts.scheme} {parts.netloc} {url.partition('::')[2]} {name}".encode()).hexdigest()[:16]
