"""Counted models that are fitted in steps: within a time budget, with progress, stopped and resumed as networks are."""

from __future__ import annotations

import time
from dataclasses import replace

from seqwright.core.progress import Progress
from seqwright.core.protocols import FitOptions, FitsInSteps, Fitting
from seqwright.core.ranks import SINGLE
from seqwright.pipeline.budget import MEASURED_SECONDS, MEASURED_SHARE
from seqwright.pipeline.recipe import Recipe
from seqwright.pipeline.run_progress import RunProgress
from seqwright.reporting.numbers import duration
from seqwright.runs.checkpoints import Checkpoint
from seqwright.runs.directory import RunDirectory
from seqwright.tasks.base import Task
from seqwright.training.signals import StopRequest

CHUNK = 32
"""Steps between reports of progress, and until a stop signal is obeyed."""
CHECKPOINT_SECONDS = 10.0
"""Seconds of fitting between checkpoints, or more where a checkpoint takes long to write (SAVING_SHARE)."""
SAVING_SHARE = 0.05


def within_budget(settings: Recipe, model: FitsInSteps, task: Task, progress: RunProgress) -> Recipe | None:
    """The recipe with a fit that takes `training.minutes`, by the speed of its first steps; None where it fits in."""
    if settings.training.minutes is None:
        return None
    fitting: Fitting = model.fitting(task.corpus)
    start, steps = time.perf_counter(), fitting.steps
    while fitting.step < MEASURED_SHARE * steps and time.perf_counter() - start < MEASURED_SECONDS:
        fitting.advance(CHUNK)
    rate = fitting.step / (time.perf_counter() - start)
    shorter = fitting.shortened(int(60 * settings.training.minutes * rate))
    if shorter == settings.model.config:
        return None
    shortened = replace(settings, model=replace(settings.model, config=shorter))
    progress.note(
        f"{steps:,} steps would take about {duration(steps / rate)}; to fit into {settings.training.minutes:g} min:"
        f" {_changes(settings, shortened)}. Ctrl-C is safe; --minutes N with another --run for another budget."
    )
    progress.forecast.announced = True
    return shortened


def _changes(before: Recipe, after: Recipe) -> str:
    """The keys of [model] that two recipes differ in."""
    old, new = before.model.to_table(), after.model.to_table()
    return ", ".join(f"model.{key} = {new[key]} instead of {old[key]}" for key in new if new[key] != old[key])


def with_shortened_fit(wanted: Recipe, before: Recipe, progress: Progress) -> Recipe:
    """The recipe of a run that is resumed, with the fit that its budget was turned into: decided once."""
    ours, theirs = wanted.model.config, before.model.config
    if wanted.training.minutes is None or not isinstance(ours, FitOptions) or type(theirs) is not type(ours):
        return wanted
    shortened = replace(wanted, model=replace(wanted.model, config=ours.no_longer_than(theirs)))
    if shortened != wanted:
        progress.note(f"the fit is that of its first session: {_changes(wanted, shortened)}.")
    if wanted.training.minutes != before.training.minutes:
        progress.note("a time budget is turned into epochs once; another --run has a budget of its own.")
    return shortened


def fit_in_steps(
    model: FitsInSteps, task: Task, directory: RunDirectory, progress: RunProgress, checkpoint: Checkpoint | None
) -> tuple[float, str | None]:
    """Fits a model, from a checkpoint where there is one; seconds of all sessions, and the signal that stopped it."""
    fitting: Fitting = model.fitting(task.corpus)
    before = 0.0
    if checkpoint is not None:
        fitting.load_state_dict(checkpoint.step, checkpoint.groups["optimizer"])
        before = checkpoint.state["progress"]["seconds"]
        directory.rewind(checkpoint.step)
        directory.log({"kind": "resume", "step": checkpoint.step})
        progress.note(checkpoint.note or f"going on from step {checkpoint.step:,}.")
    start = saved = time.perf_counter()
    pause = CHECKPOINT_SECONDS

    def save() -> None:
        model.adopt(fitting)
        groups = {"model": model.state_dict(), "optimizer": fitting.state_dict()}
        state = {"step": fitting.step, "seconds": before + time.perf_counter() - start}
        directory.checkpoints.save(fitting.step, groups, {"progress": state, "corpus": task.fingerprint}, keep=1)

    with StopRequest() as stop:
        while fitting.step < fitting.steps:
            fitting.advance(CHUNK)
            progress.step(fitting.step, fitting.steps, None, fitting.words_per_second)
            signal = stop.agreed(SINGLE)
            now = time.perf_counter()
            if signal or now - saved > pause:
                save()
                saved = time.perf_counter()
                pause = max(CHECKPOINT_SECONDS, (saved - now) / SAVING_SHARE)
            if signal:
                directory.log({"kind": "stop", "step": fitting.step, "reason": signal})
                return before + saved - start, signal
    model.adopt(fitting)
    return before + time.perf_counter() - start, None
