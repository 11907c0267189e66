"""Corrupt run files, full disks and read-only folders: errors name the file, and intact data is kept."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seqwright.runs.directory import RunDirectory
from tests.journeys.commands import TINY_GPT, files, finish, start, synthetic_text
from tests.journeys.conftest import Command

BIG = [*TINY_GPT, "--set", "model.width=256", "--set", "training.evaluate_every=2"]
"""Checkpoints of several megabytes."""


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def newer(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99, "seqwright": "9.0"}))


def another_model(path: Path) -> None:
    path.write_text(path.read_text().replace("width = 16", "width = 32"))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", truncate, "model.safetensors is damaged"),
        ("model.safetensors", Path.unlink, "model.safetensors is missing. Restore it from a copy, or train again."),
        ("recipe.toml", lambda path: path.write_text("[model\n"), "recipe.toml is damaged"),
        ("recipe.toml", lambda path: path.write_text("[model]\nkind = 'gtp'\n"), "recipe.toml is damaged"),
        ("recipe.toml", another_model, "recipe.toml is damaged: its size or sha256 is not that of manifest.json."),
        ("tokenizer.json", Path.unlink, "tokenizer.json is missing. Restore it from a copy, or train again."),
        ("tokenizer.json", lambda path: path.write_text("{}"), "tokenizer.json"),
        ("summary.json", lambda path: path.write_text("{"), "summary.json is damaged"),
        ("summary.json", lambda path: path.write_text("[]"), "summary.json is damaged: it is no JSON object."),
        ("summary.json", lambda path: path.write_text("{}"), "summary.json is damaged: it needs the key 'kind'."),
        ("log.jsonl", lambda path: path.write_text("x\n"), "log.jsonl is damaged at line 1"),
        ("log.jsonl", lambda path: path.write_text("3\n"), "log.jsonl is damaged at line 1: no record with 'kind'."),
        ("environment.json", Path.unlink, "is not a run: environment.json is missing."),
        ("environment.json", newer, "was made by seqwright 9.0, format 99"),
    ],
)
def test_corrupt_run_files_are_named(
    seqwright: Command, run_copy: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(run_copy / name)
    more = ["train", "--run", "run", "--set", "training.steps=9"]
    resuming = [["train", "--run", "run"], more] if name in ("summary.json", "log.jsonl") else []
    for command in (["generate", "run", "the"], ["evaluate", "run"], ["check", "run"], *resuming):
        result = seqwright(*command)
        assert result.status == 2
        assert message in result.err
    assert seqwright("runs", ".").status == (2 if message.startswith("is not a run") else 0)


def test_truncated_last_log_line_does_not_prevent_resume(seqwright: Command, run_copy: Path) -> None:
    with (run_copy / "log.jsonl").open("a") as log:
        log.write('{"kind": "tra')
    assert seqwright("train", "--run", "run", "--set", "training.steps=8").status == 0


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_disk_full_at_first_checkpoint_leaves_no_run(workdir: Path) -> None:
    result = finish(start("train", "--text", "text.txt", *BIG, "--run", "run", cwd=workdir, preexec=limit_file_size))
    assert result.status == 2, result.err
    assert "error: no room to write run/checkpoints" in result.err
    assert "Raise the limit on file sizes (ulimit -f), or choose a folder on another disk" in result.err
    assert files(workdir) == {"text.txt"}


def test_disk_full_at_later_checkpoint_keeps_the_earlier_one(seqwright: Command, workdir: Path) -> None:
    assert seqwright("train", "--text", "text.txt", *BIG, "--run", "run").status == 0
    before = files(workdir / "run" / "checkpoints")
    more = ("train", "--run", "run", "--set", "training.steps=20")
    result = finish(start(*more, cwd=workdir, preexec=limit_file_size))
    assert result.status == 2
    assert "no room to write run/checkpoints" in result.err
    assert files(workdir / "run" / "checkpoints") == before
    assert seqwright(*more).status == 0


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small disk")
def test_disk_full_on_a_tmpfs(workdir: Path) -> None:
    (workdir / "disk").mkdir()
    inside = [sys.executable, "-m", "seqwright", "train", "--text", "text.txt", *BIG, "--run", "disk/run"]
    script = 'mount -t tmpfs -o size=2m none disk && "$@"; status=$?; ls -A disk; exit $status'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *inside],
        cwd=workdir,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "no room to write disk/run/checkpoints" in done.stderr
    assert "No space left on device" in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_read_only_folder_is_rejected(seqwright: Command, workdir: Path) -> None:
    (workdir / "closed").mkdir(mode=0o500)
    result = seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "closed/run")
    assert result.status == 2
    assert "Choose a folder that is yours to write." in result.err
    assert files(workdir) == {"text.txt", "closed"}


def test_summary_without_steps_is_corrupt(seqwright: Command, run_copy: Path) -> None:
    summary = json.loads((run_copy / "summary.json").read_text())
    del summary["asked_steps"]
    (run_copy / "summary.json").write_text(json.dumps(summary))
    RunDirectory(run_copy).seal()
    for more in ([], ["--set", "training.steps=9"]):
        result = seqwright("train", "--run", "run", *more)
        assert result.status == 2
        assert "summary.json is damaged: it has no 'asked_steps'. Delete it to finish the run again." in result.err
    (run_copy / "summary.json").unlink()
    assert seqwright("train", "--run", "run").status == 0
    assert json.loads((run_copy / "summary.json").read_text())["asked_steps"] == 6


def no_state(checkpoint: Path) -> None:
    path = checkpoint / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": {}}))


@pytest.mark.parametrize("damage", [lambda checkpoint: (checkpoint / "model.safetensors").unlink(), no_state])
def test_resume_skips_a_corrupt_checkpoint(
    seqwright: Command, run_copy: Path, damage: Callable[[Path], object]
) -> None:
    damage(run_copy / "checkpoints" / "step-00000006")
    result = seqwright("train", "--run", "run", "--set", "training.steps=8")
    assert result.status == 0, result.err
    assert "went back to step 5" in result.err


def test_inference_needs_no_training_text(seqwright: Command, workdir: Path) -> None:
    (workdir / "other.txt").write_text(synthetic_text(60))
    assert seqwright("train", "--text", "other.txt", *TINY_GPT, "--run", "run").status == 0
    (workdir / "other.txt").unlink()
    assert seqwright("generate", "run", "the", "--max-tokens", "3").status == 0
    assert seqwright("train", "--run", "run").status == 0
    result = seqwright("evaluate", "run")
    assert result.status == 2
    assert "other.txt" in result.err
