"""Time budgets: how many optimizer steps fit into `training.minutes`, and how long a training takes."""

from __future__ import annotations

import copy
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from seqwright import build
from seqwright.core.protocols import Feed
from seqwright.core.ranks import TensorGroups
from seqwright.pipeline.recipe import Recipe
from seqwright.reporting.numbers import duration
from seqwright.runs.directory import RunDirectory
from seqwright.training import machine
from seqwright.training.checkpoint_store import Gather
from seqwright.training.config import TrainingConfig
from seqwright.training.shapes import FIRST, FirstBatches, lengths_vary
from seqwright.training.trainer import Trainer, total_steps

WARM_UP_STEPS, MEASURED_STEPS = 2, 3
"""Steps that are not timed (allocations, first kernels), and the fewest that are."""
CAPTURING = 3
"""Steps of a shape until it is captured."""
MEASURED_SECONDS = 3.0
"""Steps are measured for about this long."""
MEASURED_SHARE = 0.05
"""Share of a training's steps that measuring it takes at most, where its length is known."""
EVALUATIONS = 10
"""Evaluations of a training, by default (`training.evaluate_every`)."""
EVALUATION_SHARE = 0.2
"""Share of a budget above which evaluations become fewer: a short training is not spent on its validation data."""
LEAST_SHARE = 0.5
"""Share of a budget that steps get in any case, even where a single evaluation takes longer."""
MAX_EPOCHS = 100
"""Passes over the training data after which a budget is left unspent: more of them would only overfit."""
ANNOUNCED = 60.0
"""Seconds above which the length of a training is announced."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds of one optimizer step, and of one evaluation with its samples."""

    step: float
    evaluation: float

    def evaluations(self, minutes: float) -> int:
        """Evaluations that fit into their share of so many minutes, the last one in any case."""
        affordable = EVALUATION_SHARE * 60 * minutes / max(self.evaluation, 1e-9)
        return int(min(EVALUATIONS, max(1, affordable)))

    def steps(self, minutes: float) -> int:
        """Steps that fit into so many minutes with their evaluations."""
        seconds = 60 * minutes
        left = max(seconds - self.evaluations(minutes) * self.evaluation, LEAST_SHARE * seconds)
        return max(EVALUATIONS, _rounded(left / self.step))

    def budgeted(self, config: TrainingConfig, minutes: float, max_steps: int) -> TrainingConfig:
        """The steps of a budget, and the interval of evaluations where there is no time for the usual number."""
        steps, evaluations = min(self.steps(minutes), max_steps), self.evaluations(minutes)
        config = replace(config, steps=steps, epochs=None)
        if config.evaluate_every is None and evaluations < EVALUATIONS:
            return replace(config, evaluate_every=math.ceil(steps / evaluations))
        return config

    def seconds(self, steps: int, minutes: float) -> float:
        """Seconds of so many steps with the evaluations of so many minutes."""
        return steps * self.step + self.evaluations(minutes) * self.evaluation

    def announcement(self, wanted: TrainingConfig, steps: int, max_steps: int) -> str:
        """The length of a training of so many steps, and of the epochs it should have had where they do not fit."""
        minutes = wanted.minutes or 0.0
        length = f"{1 / self.step:.3g} steps a second on this machine: {steps:,} steps in about"
        length += f" {duration(self.seconds(steps, minutes))}"
        if wanted.epochs is not None and steps < max_steps:
            length += f" ({steps / max_steps:.0%} of {wanted.epochs:g} epochs, which would take about"
            length += f" {duration(self.seconds(max_steps, minutes))})"
        return f"{length}. Ctrl-C is safe; --minutes N for another budget."


def measure(
    model: nn.Module,
    feed: Feed,
    config: TrainingConfig,
    *,
    evaluations: Sequence[Callable[[nn.Module], Any]],
    max_steps: int | None = None,
) -> Speed:
    """The speed of a training, measured with a copy of its model, in at most `max_steps` steps."""
    throwaway = copy.deepcopy(model)
    varying = lengths_vary(feed)
    captured = varying and machine.captures(config, machine.device(config.device))
    trainer = Trainer(throwaway, FirstBatches(feed) if captured else feed, config, Discarded())
    for _ in range(CAPTURING * FIRST if captured else WARM_UP_STEPS):
        trainer.timed_step()
    steps: list[float] = []
    while len(steps) < MEASURED_STEPS or (sum(steps) < MEASURED_SECONDS and len(steps) != max_steps):
        steps.append(_seconds(trainer.timed_step, trainer.device))
    evaluation = sum(_seconds(partial(evaluate, throwaway), trainer.device) for evaluate in evaluations)
    del trainer
    gc.collect()  # trainers are cyclic, and the next one needs the memory
    # Of one shape the median, which a busy moment does not change; of several the mean: few long texts take much time.
    average = statistics.fmean if varying else statistics.median
    return Speed(step=average(steps), evaluation=evaluation)


def longest(config: TrainingConfig, feed: Feed) -> int:
    """Maximum number of steps of a time budget: those of the recipe's epochs, or of MAX_EPOCHS."""
    return max(1, round((config.epochs or MAX_EPOCHS) * feed.steps_per_epoch))


def seconds_of_steps(model: nn.Module, feed: Feed, config: TrainingConfig) -> float:
    """Seconds of all steps of a training, measured in few of them."""
    steps = total_steps(config, feed)
    return steps * measure(model, feed, config, evaluations=(), max_steps=few(steps)).step


def few(steps: int) -> int:
    """Maximum number of steps for measuring a training of so many."""
    return max(MEASURED_STEPS, int(MEASURED_SHARE * steps))


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    start = time.perf_counter()
    work()
    machine.synchronize(device)
    return time.perf_counter() - start


def _rounded(steps: float) -> int:
    """Two significant digits: a noisy measurement deserves no more, and round numbers are easier to repeat."""
    digits = 10 ** max(0, len(str(int(steps))) - 2)
    return int(steps) // digits * digits


def with_decisions(wanted: Recipe, before: Recipe, directory: RunDirectory) -> Recipe:
    """The recipe of a run that is resumed, with what was decided at its start: `training.compile`, and the steps and
    evaluations that its budget was turned into; steps in proportion where it has another budget now."""
    if wanted.training.compile == "auto":
        wanted = replace(wanted, training=replace(wanted.training, compile=before.training.compile))
    training = wanted.training
    if training.minutes is None or training.steps is not None or wanted.kind in (*build.COUNTED, *build.DERIVED):
        return wanted
    steps, minutes = before.training.steps, before.training.minutes
    if directory.finished and minutes is None:
        summary = directory.summary("asked_steps")
        steps, minutes = summary["asked_steps"], max(summary["seconds"], 1.0) / 60
    if steps is None or minutes is None:
        return wanted
    more = training.minutes / minutes
    every = training.evaluate_every if training.evaluate_every is not None else before.training.evaluate_every
    return replace(
        wanted, training=replace(training, steps=max(1, round(steps * more)), epochs=None, evaluate_every=every)
    )


class Discarded:
    """A checkpoint store that keeps nothing."""

    def log(self, record: dict[str, Any]) -> None:
        """Drops a record."""

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        """Drops a checkpoint."""

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        raise AssertionError("nothing was kept")

    def rewind(self, step: int) -> None:
        """Nothing to remove."""


class Forecast:
    """Announces, once, how long a training will take, as soon as enough steps are measured."""

    def __init__(self) -> None:
        self.start: tuple[float, int] | None = None
        self.announced = False

    def __call__(self, step: int, steps: int) -> str | None:
        """After every step: the announcement, or None."""
        now = time.perf_counter()
        if self.start is None:
            self.start = (now, step)
        seconds, taken = now - self.start[0], step - self.start[1]
        if self.announced or seconds < MEASURED_SECONDS or taken < MEASURED_STEPS:
            return None
        self.announced = True
        left = seconds / taken * (steps - step)
        if left < ANNOUNCED:
            return None
        return f"about {duration(left)} on this machine; Ctrl-C is safe; --minutes N for another budget."
