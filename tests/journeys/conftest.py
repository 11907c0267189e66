"""Fixtures of the journeys: a working directory, the command line in-process, and a trained run."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqwright.cli import main
from seqwright.runs.directory import RunDirectory
from tests.journeys.commands import TINY_GPT, Result, finish, start, synthetic_text

Command = Callable[..., Result]


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with text.txt in it."""
    (tmp_path / "text.txt").write_text(synthetic_text(60))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQWRIGHT_DATA", raising=False)
    return tmp_path


@pytest.fixture
def seqwright(workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; exceptions other than user errors propagate and fail the test."""

    def command(*arguments: str | Path, input: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["seqwright", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Result(stop.value.code, out, err)

    return command


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished GPT run, trained once per session; use `run_copy` to modify it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(synthetic_text(60))
    result = finish(start("train", "--text", "text.txt", *TINY_GPT, "--run", "run", cwd=folder))
    assert result.status == 0, result.err
    return folder / "run"


@pytest.fixture
def run_copy(trained: Path, workdir: Path) -> Path:
    """A copy of the trained run, to modify or resume."""
    copy = shutil.copytree(trained, workdir / "run")
    adopt(copy)
    return copy


def adopt(run: Path) -> None:
    """Makes a copied run one of this folder, which may name any file (`pipeline/trust.py`)."""
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps(environment | {"inode": run.stat().st_ino}))
    RunDirectory(run).seal()
