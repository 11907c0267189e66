"""Counted models: fitted in one go or in steps, and fitted again on all data once they are scored."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from seqwright import build
from seqwright.core.config import to_table
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import FitsInSteps
from seqwright.data.text.corpus import TextConfig
from seqwright.pipeline import recipe
from seqwright.pipeline.fitting import fit_in_steps, within_budget
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.run_progress import RunProgress
from seqwright.runs.checkpoints import Checkpoint
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Task
from seqwright.tasks.scores import Scores
from seqwright.training.config import TrainingConfig

COMMON_KEYS = ("training.seed", "training.device", "training.threads")
"""Keys of [training] that may also be set for a counted model."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A counted model, the task that it was fitted on, facts for the summary and, where it was refitted, its scores."""

    model: Any
    task: Task
    facts: dict[str, Any]
    scores: Scores | None = None
    stopped: str | None = None
    """The signal that stopped the fit, whose checkpoint is saved."""


def fit(
    settings: Recipe,
    model: Any,
    task: Task,
    directory: RunDirectory,
    progress: RunProgress,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Fits a counted model on the data of its task, from a checkpoint where there is one."""
    changed = recipe.differences(to_table(TrainingConfig()), to_table(settings.training), "training.")
    used = (*COMMON_KEYS, "training.minutes") if isinstance(model, FitsInSteps) else COMMON_KEYS
    if unused := [key for key, *_ in changed if key not in used]:
        own = [f"model.{key.partition('.')[2]}" for key in unused if key.partition(".")[2] in settings.model.to_table()]
        instead = f" Its own: {', '.join(own)}." if own else ""
        names = ", ".join("--minutes (training.minutes)" if key == "training.minutes" else key for key in unused)
        progress.note(f"{settings.kind} takes no gradient steps; without effect: {names}.{instead}")
    if isinstance(model, FitsInSteps):
        if checkpoint is None and (shorter := within_budget(settings, model, task, progress)):
            settings, model = shorter, build.model(shorter.model, task.codec.sizes, task=settings.data.kind)
            directory.write_recipe(settings.toml())
        seconds, stopped = fit_in_steps(model, task, directory, progress, checkpoint)
        if stopped is not None:
            return Fitted(model=model, task=task, facts={}, stopped=stopped)
    else:
        start = time.perf_counter()
        model.fit(task.corpus, progress)
        progress.stage("")
        seconds = time.perf_counter() - start
    notes = list(model.notes)
    for text in notes:
        progress.note(text)
    scores = None
    if refits(settings):
        progress.progress.note("scored on the held-out text; then fitted again on all text (data.refit).")
        scores = task.evaluate(model, "cpu", quick=False)
        model, task = _refit(settings, directory, progress)
        for text in model.notes:
            if text not in notes:
                progress.note(text)
    parameters = sum(tensor.numel() for tensor in model.state_dict().values())
    facts = {"steps": 0, "seconds": seconds, "parameters": parameters} | dict(model.facts)
    return Fitted(model=model, task=task, facts=facts, scores=scores)


def _refit(settings: Recipe, directory: RunDirectory, progress: Progress) -> tuple[Any, Task]:
    """A model of all data, with a tokenizer of all data."""
    task: Task = build.task_spec(settings.data.kind).task(fitted_on(settings), directory, SILENT)
    model = build.model(settings.model, task.codec.sizes, task=settings.data.kind)
    model.fit(task.corpus, progress)
    progress.stage("")
    return model, task


def fitted_on(settings: Recipe) -> Recipe:
    """The recipe whose training data the final model is fitted on: all of it, where it is fitted again."""
    return replace(settings, data=replace(settings.data, split=None)) if refits(settings) else settings


def refits(settings: Recipe) -> bool:
    """Whether a counted model is fitted again on all data after it is scored."""
    counted = settings.kind in build.COUNTED
    return counted and isinstance(settings.data, TextConfig) and settings.data.refit and settings.data.split is not None
