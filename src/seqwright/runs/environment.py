"""Where and how a process runs: versions, hardware, commit and command, for whoever repeats a number.

The commit is read from files of `.git`: running git would execute hooks and filters that the repository configures.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from seqwright import __version__

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
MAX_GIT_BYTES = 1 << 24
"""Bytes read of a file of .git; packed-refs of a large repository has some megabytes."""
SOURCES = Path(__file__).parents[1]


def environment() -> dict[str, Any]:
    """Versions, hardware, commit and command of this process; what is unknown is left out."""
    facts = {
        "seqwright": __version__,
        "sources": sources_hash(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "commit": commit(Path.cwd()),
        "command": shlex.join(sys.argv),
        "time": now(),
    }
    return {key: value for key, value in facts.items() if value is not None}


@functools.cache
def sources_hash() -> str:
    """sha256 over the files of this package: equal for two installations of the same sources."""
    digest = hashlib.sha256()
    for path in sorted(path for path in SOURCES.rglob("*") if path.suffix in (".py", ".toml") and path.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def commit(folder: Path) -> str | None:
    """The commit that is checked out in the repository around a folder, if any."""
    try:
        root = next(path for path in (folder, *folder.parents) if (path / ".git").exists())
        git = root / ".git"
        if git.is_file():  # a worktree or submodule: "gitdir: PATH"
            git = root / _read(git).removeprefix("gitdir:").strip()
        head = _read(git / "HEAD").strip()
        if not head.startswith("ref: "):
            return head if COMMIT.fullmatch(head) else None
        name = head.removeprefix("ref: ")
        shared = git / _read(git / "commondir").strip() if (git / "commondir").exists() else git
        found = next((_read(place / name).strip() for place in (git, shared) if (place / name).is_file()), None)
        if found is None:
            packed = (line.split(" ") for line in _read(shared / "packed-refs").splitlines())
            found = next((parts[0] for parts in packed if parts[1:] == [name]), "")
        return found if COMMIT.fullmatch(found) else None
    except (OSError, ValueError, StopIteration):  # no repository, or one that is damaged
        return None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read(path: Path) -> str:
    if not path.is_file():  # a FIFO would never end
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(MAX_GIT_BYTES).decode()


def cpu() -> str:
    """The processor's name, where the system tells it."""
    facts = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", facts.read_text()) if facts.exists() else None
    return found[1] if found else platform.processor() or platform.machine()
