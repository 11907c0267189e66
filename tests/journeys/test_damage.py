"""Runs that were damaged, and disks that are full or closed: what is wrong is named, and what was good stays."""

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

from tests.journeys.commands import TINY_GPT, ended, files, start, text_of
from tests.journeys.conftest import Command

BIG = [*TINY_GPT, "--set", "model.width=256", "--set", "training.evaluate_every=2"]
"""Checkpoints of several megabytes."""


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def newer(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99, "seqwright": "9.0"}))


def another_model(path: Path) -> None:
    path.write_text(path.read_text().replace("width = 16", "width = 32"))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", cut, "model.safetensors is damaged"),
        ("model.safetensors", Path.unlink, "model.safetensors is missing. Restore it from a copy, or train again."),
        ("recipe.toml", lambda path: path.write_text("[model\n"), "recipe.toml is damaged"),
        ("recipe.toml", lambda path: path.write_text("[model]\nkind = 'gtp'\n"), "Did you mean 'gpt'?"),
        ("recipe.toml", another_model, "open them with the recipe they were trained with"),
        ("tokenizer.json", Path.unlink, "tokenizer.json is missing. Restore it from a copy, or train again."),
        ("tokenizer.json", lambda path: path.write_text("{}"), "tokenizer.json"),
        ("summary.json", lambda path: path.write_text("{"), "summary.json is damaged"),
        ("summary.json", lambda path: path.write_text("[]"), "summary.json is damaged: it has no 'kind'."),
        ("summary.json", lambda path: path.write_text("{}"), "summary.json is damaged: it has no 'kind'."),
        ("log.jsonl", lambda path: path.write_text("x\n"), "log.jsonl is damaged at line 1"),
        ("log.jsonl", lambda path: path.write_text("3\n"), "log.jsonl is damaged at line 1: no record with 'kind'."),
        ("environment.json", Path.unlink, "is not a run: environment.json is missing."),
        ("environment.json", newer, "was made by seqwright 9.0, format 99"),
    ],
)
def test_a_damaged_run_names_the_damage(
    seqwright: Command, copy: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(copy / name)
    more = ["train", "--run", "run", "--set", "training.steps=9"]
    going_on = [["train", "--run", "run"], more] if name in ("summary.json", "log.jsonl") else []
    for command in (["generate", "run", "the"], ["evaluate", "run"], ["check", "run"], *going_on):
        said = seqwright(*command)
        assert said.status == 2
        assert message in said.err
    assert seqwright("runs", ".").status == (2 if message.startswith("is not a run") else 0)


def test_a_log_torn_by_a_kill_is_no_damage(seqwright: Command, copy: Path) -> None:
    with (copy / "log.jsonl").open("a") as log:
        log.write('{"kind": "tra')
    assert seqwright("train", "--run", "run", "--set", "training.steps=8").status == 0


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_no_room_for_a_first_checkpoint_leaves_nothing(here: Path) -> None:
    said = ended(start("train", "--text", "text.txt", *BIG, "--run", "run", cwd=here, before=small_files))
    assert said.status == 2, said.err
    assert "error: no room to write run/checkpoints" in said.err
    assert "Free some space, or choose a folder on another disk" in said.err
    assert files(here) == {"text.txt"}


def test_no_room_for_a_later_checkpoint_leaves_the_earlier_one(seqwright: Command, here: Path) -> None:
    assert seqwright("train", "--text", "text.txt", *BIG, "--run", "run").status == 0
    before = files(here / "run" / "checkpoints")
    more = ("train", "--run", "run", "--set", "training.steps=20")
    said = ended(start(*more, cwd=here, before=small_files))
    assert said.status == 2
    assert "no room to write run/checkpoints" in said.err
    assert files(here / "run" / "checkpoints") == before
    assert seqwright(*more).status == 0


def can_mount() -> bool:
    tried = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a small disk")
def test_a_disk_that_is_really_full(here: Path) -> None:
    (here / "disk").mkdir()
    inside = [sys.executable, "-m", "seqwright", "train", "--text", "text.txt", *BIG, "--run", "disk/run"]
    script = 'mount -t tmpfs -o size=2m none disk && "$@"; status=$?; ls -A disk; exit $status'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *inside],
        cwd=here,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr
    assert "no room to write disk/run/checkpoints" in done.stderr
    assert "No space left on device" in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_folder_that_is_not_ours(seqwright: Command, here: Path) -> None:
    (here / "closed").mkdir(mode=0o500)
    said = seqwright("train", "--text", "text.txt", *TINY_GPT, "--run", "closed/run")
    assert said.status == 2
    assert "Choose a folder with write permission." in said.err
    assert files(here) == {"text.txt", "closed"}


def test_a_summary_without_steps_is_damage_to_who_wants_more(seqwright: Command, copy: Path) -> None:
    summary = json.loads((copy / "summary.json").read_text())
    del summary["asked_steps"]
    (copy / "summary.json").write_text(json.dumps(summary))
    for more in ([], ["--set", "training.steps=9"]):
        said = seqwright("train", "--run", "run", *more)
        assert said.status == 2
        assert "summary.json is damaged: it has no 'asked_steps'. Delete it to finish the run again." in said.err
    (copy / "summary.json").unlink()
    assert seqwright("train", "--run", "run").status == 0
    assert json.loads((copy / "summary.json").read_text())["asked_steps"] == 6


def no_state(checkpoint: Path) -> None:
    path = checkpoint / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": {}}))


@pytest.mark.parametrize("damage", [lambda checkpoint: (checkpoint / "model.safetensors").unlink(), no_state])
def test_a_damaged_checkpoint_is_passed_over(seqwright: Command, copy: Path, damage: Callable[[Path], object]) -> None:
    damage(copy / "checkpoints" / "step-00000006")
    said = seqwright("train", "--run", "run", "--set", "training.steps=8")
    assert said.status == 0, said.err
    assert "went back to step 5" in said.err


def test_a_run_is_of_use_without_its_text(seqwright: Command, here: Path) -> None:
    (here / "other.txt").write_text(text_of(60))
    assert seqwright("train", "--text", "other.txt", *TINY_GPT, "--run", "run").status == 0
    (here / "other.txt").unlink()
    assert seqwright("generate", "run", "the", "--max-tokens", "3").status == 0
    assert seqwright("train", "--run", "run").status == 0
    said = seqwright("evaluate", "run")
    assert said.status == 2
    assert "other.txt" in said.err
