"""The checkpoints of a run: written atomically, kept as long as they are needed, loaded only where every hash fits."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from seqwright.core.config import UserError
from seqwright.core.lock import is_locked
from seqwright.core.regular_files import FileRecord
from seqwright.core.safetensors_chunks import StreamedTensors
from seqwright.core.storage import (
    atomic_directory,
    load_tensors,
    read_record,
    read_toml,
    remove_directory,
    save_tensors,
    to_json,
    write_json,
    write_text,
)
from seqwright.runs.manifest import NAME, Manifest, model_records, records_of

STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """What is not a tensor: the trainer's progress, and the fingerprint of the corpus."""

    progress: dict[str, Any]
    corpus: str


@dataclass(frozen=True, kw_only=True)
class CheckpointState:
    """The contents of a state.json."""

    step: int
    groups: list[str]
    """Names of the tensor files."""
    state: TrainingState

    def __post_init__(self) -> None:
        if not {"model", "optimizer"} <= set(self.groups) or self.state.progress.get("step") != self.step:
            raise UserError("it does not name its tensors and its step.")


@dataclass(frozen=True)
class Checkpoint:
    """Everything from which training resumes as if it had never stopped."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    """Tensors by file (model and optimizer, carry and ema where training has them), then by name."""
    state: dict[str, Any]
    """What is not a tensor: the trainer's progress, and the fingerprint of the corpus."""
    record: FileRecord
    """Size and sha256 of the file of its weights."""
    note: str = ""
    """Why newer checkpoints were skipped, for the user."""

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights to compute with: the exponential moving average where there is one."""
        return self.groups[weights_group(self.groups)]


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
        groups: Mapping[str, Mapping[str, Tensor] | StreamedTensors],
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
            write_json(folder / STATE, {"step": step, "groups": sorted(groups), "state": state})
            files = records_of({path.name: path for path in sorted(folder.iterdir())})
            # Not written atomically: the folder is, and syncs its files.
            (folder / NAME).write_text(Manifest(files=files, model=self._model_records()).json(), encoding="utf-8")
        write_text(self.pointer, f"{step}\n")
        newest = [s for s in self.steps() if s <= step][-keep:]
        for old in self.steps():
            if old not in newest and (old > step or old not in kept):
                remove_directory(self._folder(old))

    def clear(self) -> None:
        """Removes all checkpoints: those of a counted model have nothing left to resume once it is finished."""
        for step in self.steps():
            remove_directory(self._folder(step))
        self.pointer.unlink(missing_ok=True)

    def model_path(self, step: int) -> Path:
        """The weights of a checkpoint."""
        return self._folder(step) / "model.safetensors"

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of a step; UserError where a file of it, or of the model it belongs to, was changed."""
        folder = self._folder(step)
        manifest = Manifest.read(folder)
        manifest.check(folder, {path.name: path for path in folder.iterdir() if path.name != NAME})
        now = self._model_records()
        if changed := [name for name in {**manifest.model, **now} if manifest.model.get(name) != now.get(name)]:
            raise UserError(f"{changed[0]} is not what step {step} was trained with. Restore it from a copy.")
        about = read_record(folder / STATE, CheckpointState)
        if about.step != step:
            raise UserError(f"{folder / STATE} is damaged: it is of step {about.step}.")
        groups = {name: load_tensors(folder / f"{name}.safetensors")[0] for name in about.groups}
        state = {"progress": about.state.progress, "corpus": about.state.corpus}
        return Checkpoint(step, groups, state, manifest.files[f"{weights_group(groups)}.safetensors"])

    def latest(self) -> Checkpoint | None:
        """The checkpoint to go on from: the one pointed to or, if that is damaged, the newest good one, with a note."""
        steps = self.steps()[::-1]
        pointed = self._pointed()
        if pointed is not None:
            steps = [pointed, *(step for step in steps if step != pointed)]
        refused: list[str] = []
        for step in steps:
            try:
                checkpoint = self.load(step)
            except UserError as error:
                refused.append(str(error))
                continue
            note = f"went back to step {step}, because {' '.join(refused)}" if refused else ""
            return replace(checkpoint, note=note)
        if refused:
            advice = "Try again in a moment" if is_locked(self.path.parent) else f"Delete {self.path} to start again"
            raise UserError(f"no checkpoint can be read. {advice}.\n" + "\n".join(refused))
        return None

    def _pointed(self) -> int | None:
        text = self.pointer.read_bytes().strip() if self.pointer.exists() else b""
        return int(text) if text.isdigit() and len(text) < 20 else None

    def _model_records(self) -> dict[str, FileRecord]:
        recipe = self.path.parent / "recipe.toml"
        return model_records(self.path.parent, read_toml(recipe).get("model") if recipe.exists() else None)

    def _folder(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"


def weights_group(groups: Collection[str]) -> str:
    """The group of tensors to compute with: "ema" where there is one."""
    return "ema" if "ema" in groups else "model"
