"""An exclusive lock on a folder, held by the operating system: a dead holder holds nothing."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from seqwright.core.config import UserError
from seqwright.core.regular_files import open_regular
from seqwright.core.storage import staging, sweep, sync, write_errors

NAME = ".lock"
HOLDER = "process {process} on {node} since {time}"
"""The contents of a lock file."""
ATTEMPTS = 3
"""A lock that is held for an instant only may be that of `is_locked`."""


def lock(folder: Path, advice: str) -> IO[str]:
    """The locked lock file of a folder; UserError with the holder and `advice` where another process has it.

    One that its holder unlinked while we waited guards nothing, so it is opened again.
    """
    path = folder / NAME
    for attempt in itertools.count(1):
        with write_errors(folder):
            file = os.fdopen(open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    _sign(file)
                    return file
        except BlockingIOError:
            if attempt == ATTEMPTS:
                file.seek(0)
                holder = file.read(200) or "another process"
                raise UserError(f"{folder} is being written by {holder}. {advice}") from None
            time.sleep(0.01)
        file.close()
    raise AssertionError("unreachable")


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a folder."""
    try:
        handle = open_regular(folder / NAME)
    except (OSError, UserError):  # there is none, or none that can be read
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to `path`, missing or empty until then, when the block succeeds."""
    sweep(path)
    with staging(path) as staged:
        staged.mkdir()
        yield staged
        for child in (staged, *staged.rglob("*")):
            sync(child)
        try:
            staged.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise UserError(f"{path} was made by another process meanwhile. Choose another folder.") from None
        sync(path.parent)


def is_lock(path: Path) -> bool:
    """Whether a file is one that `lock` left. It is never synced: power loss cuts it or leaves zeros at its end."""
    if path.name != NAME or path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return HOLDER[:8].encode().startswith(file.read(8).rstrip(b"\0"))


def _sign(file: IO[str]) -> None:
    with suppress(OSError):  # who holds it is a courtesy; a full disk is met, and named, by what must be kept
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.write(file.fileno(), HOLDER.format(process=os.getpid(), node=platform.node(), time=since).encode())
