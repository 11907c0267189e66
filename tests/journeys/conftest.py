"""What journeys share: an empty folder to stand in, the commands, and a trained run to use."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqwright.cli import main
from tests.journeys.commands import TINY_GPT, Said, ended, start, text_of

Command = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder one stands in, with a text in it."""
    (tmp_path / "text.txt").write_text(text_of(60))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    return tmp_path


@pytest.fixture
def seqwright(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A command run in this process; an exception that is no clear error passes through and fails the test."""

    def command(*arguments: str | Path, input: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["seqwright", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Said(stop.value.code, out, err)

    return command


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained once; copy it before changing anything."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(text_of(60))
    said = ended(start("train", "--text", "text.txt", *TINY_GPT, "--run", "run", cwd=folder))
    assert said.status == 0, said.err
    return folder / "run"


@pytest.fixture
def copy(trained: Path, here: Path) -> Path:
    """A trained run of one's own, to damage or go on with; its text lies where it was."""
    return shutil.copytree(trained, here / "run")
