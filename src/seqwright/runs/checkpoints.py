"""The checkpoints of a run: written whole, kept as long as they are needed, and trusted only where they are whole."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from seqwright.core.config import UserError
from seqwright.core.storage import (
    atomic_directory,
    load_tensors,
    read_json,
    remove_directory,
    save_tensors,
    to_json,
    write_json,
    write_text,
)


@dataclass(frozen=True)
class Checkpoint:
    """Everything training needs to go on as if it had never stopped."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    """Tensors by file (model and optimizer, carry and ema where training has them), then by name."""
    state: dict[str, Any]
    """What is not a tensor: the trainer's progress, and the fingerprint of the corpus."""
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
        with atomic_directory(self._folder(step)) as folder:
            for name, tensors in groups.items():
                save_tensors(folder / f"{name}.safetensors", tensors)
            write_json(folder / "state.json", {"step": step, "groups": sorted(groups), "state": state})
        write_text(self.pointer, f"{step}\n")
        newest = [s for s in self.steps() if s <= step][-keep:]
        for old in self.steps():
            if old not in newest and (old > step or old not in kept):
                remove_directory(self._folder(old))

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of a step, in full."""
        folder = self._folder(step)
        about = read_json(folder / "state.json")
        if not _is_whole(about, step):
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


def _is_whole(about: Any, step: int) -> bool:
    """Whether a state.json holds all that training goes on from."""
    try:
        progress, corpus = about["state"]["progress"], about["state"]["corpus"]
        return {"model", "optimizer"} <= set(about["groups"]) and progress["step"] == step and isinstance(corpus, str)
    except (KeyError, TypeError):
        return False
