"""Copies of remote files (fsspec: s3://, gs://, hf://, https://) in the cache folder, for `seqwright data prepare`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from seqwright.core.config import UserError
from seqwright.core.storage import write_chunks
from seqwright.data.columnar import extra_module

CHUNK = 1 << 22
"""Bytes of a remote file in memory at a time."""


def local_copies(url: str, cache: Path) -> list[Path]:
    """Local copies of the file, files or folder of a URL, in the order of their names; complete ones are reused."""
    fsspec = extra_module("fsspec.core", f"reading {url}")
    try:
        files, path = fsspec.url_to_fs(url)
        names = _names(files, path)
        if not names:
            raise FileNotFoundError("there is no such file")
        return [_copy(files, name, cache / _key(url, name) / _file_name(name)) for name in names]
    except UserError:
        raise
    except Exception as error:  # file systems of fsspec raise errors of the libraries that they are made of
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{url} cannot be read ({reason}). See its name, or your permission to read it.") from error


def _names(files: Any, path: str) -> list[str]:
    if any(character in path for character in "*?["):
        return sorted(files.glob(path))
    return sorted(files.find(path)) if files.isdir(path) else [path] * files.exists(path)


def _file_name(name: str) -> str:
    """The name of a copy, whose suffix tells its format: without the query of a web address."""
    return PurePosixPath(urlsplit(name).path if "://" in name else name).name


def _key(url: str, name: str) -> str:
    """A folder for each remote file: files of different folders may have one name."""
    return hashlib.sha256(f"{url.partition('://')[0]} {name}".encode()).hexdigest()[:16]


def _copy(files: Any, name: str, target: Path) -> Path:
    if not (target.exists() and target.stat().st_size == files.size(name)):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_chunks(target, _chunks(files, name))
    return target


def _chunks(files: Any, name: str) -> Iterator[bytes]:
    with files.open(name, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
