"""Fetched shards in a folder of bounded size: those that were not used for the longest time are dropped (decision 211).

Shards are named by their sha256, so that trainings, corpora and the ranks of a machine share them. No process keeps one
open: what is dropped is free at once, and a reader whose shard was dropped fetches it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.core.limits import limit
from seqwright.core.native import cache_folder
from seqwright.core.regular_files import FileRecord
from seqwright.core.storage import recover, write_chunks, write_errors

LIMIT = "SEQWRIGHT_SHARD_CACHE_BYTES"
LOCK = ".lock"


class DamagedShardError(Exception):
    """What was fetched is not what the checksum is of."""


class ShardCache:
    """The folder of shards, and the bytes that it may hold."""

    def __init__(self, folder: Path | None = None, max_bytes: int | None = None):
        self.folder = folder or cache_folder() / "shards"
        self.max_bytes = max_bytes or limit(LIMIT)
        self.verified: set[str] = set()
        """Shards whose checksum this process has compared."""

    def path(self, sha256: str, size: int, fetch: Callable[[], Iterable[bytes]]) -> Path:
        """The file of a shard, fetched where it is not there; it may be dropped again at any time."""
        path = self.folder / f"{sha256}.bin"
        if self._is_intact(path, sha256, size):
            return path
        with self._locked():
            if not self._is_intact(path, sha256, size):  # else another process fetched it meanwhile
                self._make_room(size)
                write_chunks(path, _verified(fetch(), sha256))
                self.verified.add(sha256)
        return path

    def touch(self, sha256: str) -> bool:
        """Whether a shard is there; if so, it counts as used now."""
        try:
            os.utime(self.folder / f"{sha256}.bin")
        except OSError:
            return False
        return True

    def _is_intact(self, path: Path, sha256: str, size: int) -> bool:
        """Whether the shard is there and intact; it is the last one used now."""
        if not self.touch(sha256):
            return False
        try:
            if sha256 not in self.verified:
                if path.stat().st_size != size or FileRecord.of(path).sha256 != sha256:
                    path.unlink()
                    return False
                self.verified.add(sha256)
        except (OSError, UserError):  # dropped meanwhile
            return False
        return True

    def _make_room(self, size: int) -> None:
        """Drops the shards that were not used for the longest time, until one of `size` bytes fits."""
        recover(self.folder)
        shards = []
        for path in self.folder.glob("*.bin"):
            with suppress(FileNotFoundError):
                status = path.stat()
                shards.append((status.st_mtime_ns, status.st_size, path))
        total = sum(shard_size for _, shard_size, _ in shards)
        for _, shard_size, path in sorted(shards):
            if total + size <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= shard_size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Context manager that other processes and threads wait for."""
        with write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / LOCK).open("w")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _verified(chunks: Iterable[bytes], sha256: str) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        yield chunk
    if digest.hexdigest() != sha256:
        raise DamagedShardError("its sha256 is not that of index.json")
