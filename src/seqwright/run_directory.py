"""The folder of a run: what it holds, who may write to it, and which of its checkpoints can be trusted.

    recipe.toml  tokenizer.json  model.safetensors  log.jsonl  summary.json  environment.json  report.html
    checkpoints/step-00001000/{model,optimizer,ema,carry}.safetensors + state.json
    checkpoints/latest

Killed at any moment, it opens, and training goes on from the last checkpoint. `environment.json` is written last when a
run is made: it marks a folder as a run and carries the version of this layout.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from seqwright import __version__
from seqwright.config import UserError, did_you_mean
from seqwright.storage import (
    append_line,
    check_tensors,
    directory,
    load_tensors,
    read_json,
    read_lines,
    read_text,
    recover,
    remove,
    save_tensors,
    to_json,
    writable,
    write_json,
    write_text,
)

FORMAT = 1
"""The version of the layout. Raise it when an older seqwright could no longer read what this one writes."""
LOCK = ".lock"


class RunDirectory:
    """A run on disk: from `create` or `open`. Long writers work inside `with run.writing():`."""

    def __init__(self, path: Path):
        self.path = path
        self.recipe_path = path / "recipe.toml"
        self.tokenizer_path = path / "tokenizer.json"
        self.source_tokenizer_path = path / "source-tokenizer.json"
        self.model_path = path / "model.safetensors"
        self.log_path = path / "log.jsonl"
        self.summary_path = path / "summary.json"
        self.environment_path = path / "environment.json"
        self.report_path = path / "report.html"
        self.checkpoints = Checkpoints(path / "checkpoints")

    @classmethod
    def create(cls, path: Path | str, *, recipe: str) -> Self:
        """A new run from the text of its resolved recipe, in a folder that is not there yet or holds nothing."""
        run = cls(Path(path))
        # A killed `create` leaves a recipe and hidden files: that may be made again. Anything else is somebody's.
        others = sorted(p.name for p in run.path.glob("*") if p != run.recipe_path and not p.name.startswith("."))
        if others and not is_run(run.path):
            raise UserError(f"{path} is not a run and holds other things ({others[0]}). Choose an empty folder.")
        with writable(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.writing():
            if is_run(run.path):
                raise UserError(f"{path} already holds a run. Choose another folder, or delete it to start again.")
            try:
                write_text(run.recipe_path, recipe)
                write_json(run.environment_path, {"format": FORMAT, **environment()})
            except BaseException:
                run.discard()
                raise
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """A run that is there, each of its files checked: a damaged one is named now rather than met later."""
        run = cls(Path(path))
        if not is_run(run.path):
            raise UserError(_not_a_run(run.path))
        made = run.environment()
        if not isinstance(made, dict) or type(made.get("format")) is not int:
            raise UserError(
                f"{run.environment_path} is damaged: it has no format. Restore it from a copy, or train again."
            )
        if made["format"] > FORMAT:
            raise UserError(
                f"{path} was made by seqwright {made.get('seqwright')}, format {made['format']}; this is seqwright "
                f"{__version__}, which reads formats up to {FORMAT}. Upgrade seqwright to open it."
            )
        run.recipe()
        run.records()
        if run.finished or run.tokenizer_path.exists():
            read_json(run.tokenizer_path)
        if run.finished:
            run.summary()
        if run.finished or run.model_path.exists():
            check_tensors(run.model_path)
        return run

    @contextmanager
    def writing(self) -> Iterator[Self]:
        """Alone in this folder until the block ends. The lock is the system's: a dead holder holds nothing."""
        with writable(self.path):
            file = (self.path / LOCK).open("a+")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise UserError(
                    f"{self.path} is being written by {file.read() or 'another process'}. "
                    "Wait for it, stop it, or give this one another folder with --run."
                ) from None
            with suppress(OSError):  # who holds it is a courtesy; a full disk is met, and named, by what must be kept
                file.truncate(0)
                os.write(file.fileno(), f"process {os.getpid()} on {platform.node()} since {_now()}".encode())
            recover(self.path)
            recover(self.checkpoints.path)
            yield self

    def recipe(self) -> dict[str, Any]:
        """The resolved recipe as plain tables."""
        try:
            return tomllib.loads(read_text(self.recipe_path))
        except tomllib.TOMLDecodeError as error:
            raise UserError(
                f"{self.recipe_path} is damaged: {error}. Restore it from a copy, or train again."
            ) from None

    def environment(self) -> Any:
        return read_json(self.environment_path)

    def summary(self) -> dict[str, Any]:
        found = read_json(self.summary_path)
        if not isinstance(found, dict):
            raise UserError(f"{self.summary_path} is damaged: it holds no scores. Delete it to finish the run again.")
        return found

    @property
    def finished(self) -> bool:
        """Whether training came to its end: the summary is written last."""
        return self.summary_path.exists()

    @property
    def learnt(self) -> bool:
        """Whether there is anything a training would go on from or end with."""
        return bool(self.checkpoints.steps()) or self.model_path.exists()

    def clear(self) -> None:
        """Forgets how far a training came that learnt nothing: the next one may have another recipe."""
        self.tokenizer_path.unlink(missing_ok=True)
        self.source_tokenizer_path.unlink(missing_ok=True)
        self.log_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Takes back a run that learnt nothing; whatever else lies in its folder stays."""
        self.environment_path.unlink(missing_ok=True)
        self.clear()
        self.recipe_path.unlink(missing_ok=True)
        (self.path / LOCK).unlink(missing_ok=True)
        for folder in (self.checkpoints.path, self.path):
            with suppress(OSError):  # not there, or not empty
                folder.rmdir()

    def log(self, record: Mapping[str, Any]) -> None:
        """Adds one line to the log."""
        append_line(self.log_path, record)

    def records(self) -> list[dict[str, Any]]:
        """The log, oldest first."""
        return read_lines(self.log_path) if self.log_path.exists() else []

    def note(self, text: str) -> None:
        """Puts on record what a reader of the numbers should know: a fall-back, a truncation, a held-out part."""
        self.log({"kind": "note", "text": text, "time": _now()})

    def notes(self) -> list[str]:
        return [record["text"] for record in self.records() if record["kind"] == "note"]

    def rewind(self, step: int) -> None:
        """Forgets the log's steps after `step`: a resumed run takes them again. Notes stay."""
        kept = [record for record in self.records() if record.get("step", 0) <= step]
        write_text(self.log_path, "".join(to_json(record) + "\n" for record in kept))


@dataclass(frozen=True)
class Checkpoint:
    """Everything training needs to go on as if it had never stopped."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    """Tensors by file (model, optimizer, ema, carry), then by name."""
    state: dict[str, Any]
    """What is not a tensor: schedule, early stopping, seeds."""
    note: str = ""
    """What to tell the user where newer checkpoints had to be passed over."""


class Checkpoints:
    """The checkpoints of a run: a folder for each step kept, and a pointer to the one to go on from."""

    def __init__(self, path: Path):
        self.path = path
        self.pointer = path / "latest"

    def steps(self) -> list[int]:
        """The steps at which there is a checkpoint, oldest first."""
        return sorted(int(p.name[5:]) for p in self.path.glob("step-*") if re.fullmatch(r"step-\d{8,}", p.name))

    def save(
        self,
        step: int,
        groups: Mapping[str, Mapping[str, Tensor]],
        state: Mapping[str, Any],
        *,
        keep: int,
        kept: Collection[int] = (),
    ) -> None:
        """Writes a checkpoint, points to it, then lets go of all but the `keep` newest and those of steps in `kept`.

        Checkpoints of later steps go too: they belong to a history that was given up when training went on from here.
        """
        assert keep >= 1
        if json.loads(to_json(state)) != state:
            raise ValueError(
                f"checkpoint state does not survive JSON (tuples, inf, keys that are no strings?): {state}"
            )
        with directory(self._folder(step)) as folder:
            for name, tensors in groups.items():
                save_tensors(folder / f"{name}.safetensors", tensors)
            write_json(folder / "state.json", {"step": step, "groups": sorted(groups), "state": state})
        write_text(self.pointer, f"{step}\n")
        newest = [s for s in self.steps() if s <= step][-keep:]
        for old in self.steps():
            if old not in newest and (old > step or old not in kept):
                remove(self._folder(old))

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of a step, in full."""
        folder = self._folder(step)
        about = read_json(folder / "state.json")
        if not isinstance(about, dict) or not about.keys() >= {"groups", "state"}:
            raise UserError(f"{folder / 'state.json'} is damaged: it does not say what the checkpoint holds.")
        groups = {name: load_tensors(folder / f"{name}.safetensors")[0] for name in about["groups"]}
        return Checkpoint(step, groups, about["state"])

    def latest(self) -> Checkpoint | None:
        """The checkpoint to go on from: the one pointed to or, if that is damaged, the newest good one, with a note."""
        steps = self.steps()[::-1]
        pointed = self._pointed()
        if pointed is not None:
            steps = [pointed, *(step for step in steps if step != pointed)]
        refused: list[str] = []
        for step in steps:
            try:
                found = self.load(step)
            except UserError as error:
                refused.append(str(error))
                continue
            note = f"went back to step {step}, because {' '.join(refused)}" if refused else ""
            return Checkpoint(found.step, found.groups, found.state, note)
        if refused:
            raise UserError(f"no checkpoint can be read. Delete {self.path} to start again.\n" + "\n".join(refused))
        return None

    def _pointed(self) -> int | None:
        text = self.pointer.read_bytes().strip() if self.pointer.exists() else b""
        return int(text) if text.isdigit() else None

    def _folder(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, damaged or not."""
    return (path / "environment.json").is_file()


def find_runs(folder: Path) -> list[Path]:
    """The runs directly inside a folder, by name."""
    return sorted(path for path in folder.glob("*") if is_run(path)) if folder.is_dir() else []


def environment() -> dict[str, Any]:
    """Where and how this process runs: what somebody who repeats a number needs to know."""
    facts = {
        "seqwright": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "commit": _commit(),
        "command": shlex.join(sys.argv),
        "time": _now(),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _not_a_run(path: Path) -> str:
    if path.is_file():
        return f"{path} is a file. Name the folder of a run" + (f": {path.parent}." if is_run(path.parent) else ".")
    inside = [run.name for run in find_runs(path)]
    if inside:
        return f"{path} holds runs but is none itself. Name one of them, as in {path / inside[0]}."
    if path.is_dir():
        return (
            f"{path} is not a run: environment.json is missing. Restore that file from a copy, or train a new run "
            f"with `seqwright train --run {path}`."
        )
    siblings = [run.name for run in find_runs(path.parent)]
    if siblings:
        return f"no run at {path}.{did_you_mean(path.name, siblings) or ' `seqwright runs` lists what is there.'}"
    return f"no run at {path}. Train one with `seqwright train --run {path}`."


def _cpu() -> str:
    facts = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", facts.read_text()) if facts.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the folder one stands in, marked where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
