"""Lock files of folders: which are ours, and temporary folders of killed processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.lock import is_lock, lock, new_directory
from seqwright.core.storage import atomic_path, staging, sweep


@pytest.mark.parametrize("content", [b"", b"pro", b"proc" + bytes(40), bytes(60)])
def test_a_lock_that_power_loss_tore_is_one_of_ours(tmp_path: Path, content: bytes) -> None:
    """Lock files are not synced: their end may be missing, or zeros."""
    (tmp_path / ".lock").write_bytes(content)
    assert is_lock(tmp_path / ".lock")
    with lock(tmp_path, "It is in use."):
        assert is_lock(tmp_path / ".lock")


@pytest.mark.parametrize("content", [b"mine", b"\0mine", b"procure"])
def test_a_lock_of_another_program_is_not_ours(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".lock").write_bytes(content)
    assert not is_lock(tmp_path / ".lock")


def killed_while_writing(write: Callable[..., Any], path: Path) -> None:
    """A process that is killed inside the block of `write`."""

    def work() -> None:
        with write(path) as staged:
            target = staged / "file" if staged.is_dir() else staged
            target.write_text("partial")
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("write", [atomic_path, new_directory])
def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path: Path, write: Callable[..., Any]) -> None:
    path = tmp_path / "a[1]"
    killed_while_writing(write, path)
    assert len([*tmp_path.iterdir()]) == 1, "one temporary directory"
    sweep(path.with_name("other"))
    assert len([*tmp_path.iterdir()]) == 1, "another name is not swept"
    if write is atomic_path:
        sweep(path)
    with write(path) as staged:
        (staged / "file" if staged.is_dir() else staged).write_text("complete")
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_live_writer_is_not_swept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with staging(path) as staged:
        sweep(path)
        staged.write_text("kept")
    (tmp_path / ".tmp-mine-a").mkdir()
    (tmp_path / ".tmp-01234567-a").write_text("a file")
    sweep(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".tmp-01234567-a", ".tmp-mine-a"]
