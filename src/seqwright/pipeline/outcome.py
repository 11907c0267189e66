"""What a training returns, which of its weights, and whether a finished one is to go on."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.printable import quantity
from seqwright.core.progress import Progress
from seqwright.data.files import as_list, expand, is_remote, resolve
from seqwright.data.samples.text import is_embedded
from seqwright.pipeline.recipe import Recipe
from seqwright.runs.directory import RunDirectory

STEP_KEYS = ("asked_steps", "steps_per_epoch")
"""Keys of the summary of a model trained by gradients."""


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    path: Path
    summary: dict[str, Any] | None
    """None where training was stopped before its end."""
    stopped: str | None = None
    """The signal that stopped training."""
    already: bool = False
    """Whether the run was already finished."""
    advice: tuple[tuple[str, str], ...] = ()
    """What training shows should be done next: sentences and their commands."""


def note_kept_weights(progress: Progress, kind: str, steps: Sequence[int], last: int) -> None:
    """Notes that the weights of another step than the last are kept."""
    if kind == "best" and list(steps) != [last]:
        progress.note(
            f"the weights of step {steps[0]:,} are kept, which had the best validation loss; training.weights ="
            f' "last" keeps those of step {last:,}.'
        )


def note_changed_files(wanted: Recipe, directory: RunDirectory, progress: Progress) -> None:
    """Notes data files that were modified after a run was finished, by their times: it is not trained again."""
    finished = directory.summary_path.stat().st_mtime
    for key in wanted.data.files:
        for name in as_list(getattr(wanted.data, key)):
            changed = [file for file in _files_of(name) if file.stat().st_mtime > finished]
            if changed:
                more = f" (and {quantity(len(changed) - 1, 'more file')})" if changed[1:] else ""
                progress.note(
                    f"{changed[0]}{more} was modified after {directory.path} was finished, whose scores are of the file"
                    " as it was; give a new folder with --run to train on it as it is now."
                )


def replaced_files(wanted: Recipe, before: Recipe, directory: RunDirectory) -> list[str]:
    """Keys of data files that are not those of a run, seen before they are read: those of the run are still there,
    unmodified since it was begun, and have other bytes. The same data may have another name."""
    begun = directory.environment_path.stat().st_mtime
    keys = set(wanted.data.files) & set(before.data.files)
    return [
        f"data.{key}" for key in sorted(keys) if _differ(getattr(before.data, key), getattr(wanted.data, key), begun)
    ]


def _differ(before: Any, now: Any, begun: float) -> bool:
    """Whether files hold other bytes than earlier ones; False where one of these is missing or was modified since."""
    named = [[_files_of(name) for name in as_list(names)] for names in (before, now)]
    if before == now or not all(files and all(files) for files in named):
        return False
    old, new = ([*chain.from_iterable(files)] for files in named)
    if any(file.stat().st_mtime > begun for file in old):
        return False
    return len(old) != len(new) or not all(map(partial(filecmp.cmp, shallow=False), old, new))


def _files_of(name: str) -> list[Path]:
    """The files that a name of a recipe stands for: one, those of a folder or a pattern, or none that are here."""
    if is_embedded(name) or is_remote(name):
        return []
    with suppress(UserError):
        path = resolve(name)
        return sorted(file for file in path.rglob("[!.]*") if file.is_file()) if path.is_dir() else expand(path)[0]
    return []


def wants_more(wanted: Recipe, directory: RunDirectory, progress: Progress) -> bool:
    """Whether the recipe of a finished run now has more steps."""
    if wanted.kind in build.COUNTED:
        return False
    steps, reached = wanted.training.steps, directory.summary(*STEP_KEYS)
    if wanted.training.epochs is not None:
        steps = round(wanted.training.epochs * reached["steps_per_epoch"])
    if steps and steps < reached["asked_steps"]:
        progress.note(
            f"its {reached['asked_steps']:,} steps are more than the {steps:,} asked for, which count from the"
            " beginning: it stays."
        )
    return (steps or 0) > reached["asked_steps"]
