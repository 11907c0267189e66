"""Lock files of folders: which are ours, and temporary folders of killed processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwright.core.lock import is_lock, lock


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
