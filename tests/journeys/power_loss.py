"""A power failure at the n-th write-side call of a process: what was not synced is torn, renames may be undone.

The calls are patched, not the disk: a file counts as synced if it was fsynced and not changed since, a rename if the
folder of its target was. At the chosen call the process damages everything else as a disk might, and ends.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "link", "truncate", "ftruncate")
NEVER = 1 << 30
"""The number of a call that no process comes to."""
LOST = 99
"""Exit status of a process that lost its power."""


class Disk:
    """The files below a folder, and what of them would survive."""

    def __init__(self, folder: Path, at: int, aside: Path):
        self.folder, self.at, self.aside = folder, at, aside
        self.calls = 0
        self.synced: dict[int, tuple[int, int]] = {}
        """Size and time of change of each inode when it was last synced."""
        self.renames: list[tuple[Path, Path, Path | None]] = []
        """(source, target, copy of the replaced file) of renames whose folder is not synced yet."""
        self.original = {name: getattr(os, name) for name in CALLS}
        self.remember(folder)

    def install(self) -> None:
        """Counts the calls of this process from now on."""
        for name in CALLS:
            setattr(os, name, self._counted(name))

    def _counted(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                self.lose()
            if name in ("rename", "replace"):
                return self._rename(Path(arguments[0]), Path(arguments[1]))
            done = self.original[name](*arguments, **options)
            if name == "fsync":
                self._sync(arguments[0])
            return done

        return call

    def remember(self, folder: Path) -> None:
        """Takes the files of a folder as synced: they are from before."""
        for path in folder.rglob("*"):
            self._record(path.lstat())

    def _record(self, status: os.stat_result) -> None:
        self.synced[status.st_ino] = (status.st_size, status.st_mtime_ns)

    def _sync(self, handle: int) -> None:
        status = os.fstat(handle)
        self._record(status)
        if stat.S_ISDIR(status.st_mode):
            self.renames = [
                entry for entry in self.renames if not _is(entry[1].parent, status) and not _is(entry[0].parent, status)
            ]

    def _rename(self, source: Path, target: Path) -> None:
        replaced = None
        if target.is_file():
            replaced = self.aside / str(self.calls)
            self.original["link"](target, replaced)
        self.original["rename"](source, target)
        self.renames.append((source, target, replaced))

    def lose(self) -> None:
        """Damages what is not synced, and ends the process."""
        rng = random.Random(self.at)
        for source, target, replaced in reversed(self.renames):
            if rng.random() < 0.5 and target.exists() and source.parent.exists():
                self.original["rename"](target, source)
                if replaced is not None:
                    self.original["rename"](replaced, target)
        for path in list(self.folder.rglob("*")):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and self.synced.get(status.st_ino) != (status.st_size, status.st_mtime_ns):
                _tear(path, status.st_size, rng)
        os._exit(LOST)


def _tear(path: Path, size: int, rng: random.Random) -> None:
    """Cuts an unsynced file anywhere, or leaves zeros where its last block was."""
    with path.open("r+b") as file:
        file.truncate(rng.randrange(size + 1))
        if rng.random() < 0.3 and path.suffix != ".jsonl":
            file.truncate(size)


def _is(folder: Path, status: os.stat_result) -> bool:
    return folder.exists() and os.path.samestat(folder.stat(), status)


def run_until_power_loss(work: Callable[..., object], arguments: tuple[Any, ...], folder: Path, at: int) -> None:
    """Does the work in this process, whose power fails at the call of number `at`."""
    aside = _aside(folder)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    disk = Disk(folder, at, aside)
    disk.install()
    work(*arguments)
    (aside / "calls").write_text(str(disk.calls))
    os._exit(0)


def calls_of(folder: Path) -> int:
    """The number of write-side calls of the last process that came to its end."""
    return int((_aside(folder) / "calls").read_text())


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-aside")
