"""Trainer state beside weights, optimizer and carried states: checkpoint ranking, plateau schedule, early stopping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from seqwright.core.batch import accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.storage import to_record
from seqwright.training.averaging import is_triggered
from seqwright.training.config import TrainingConfig


@dataclass
class TrainerState:
    """Plain numbers, saved in every checkpoint as JSON (decision 31)."""

    step: int = 0
    seconds: float = 0.0
    """Time spent in steps, without evaluations, samples and checkpoints."""
    saving_seconds: float = 0.0
    """Time for which steps waited for checkpoints."""
    tokens: int = 0
    initial_loss: float | None = None
    """Loss of the first step, before any update."""
    best: float | None = None
    """The lowest validation nll so far, and its step."""
    best_step: int | None = None
    ranking: list[tuple[float, int]] = field(default_factory=list)
    """The keep_best best evaluations as [nll, step], best first."""
    recent: list[int] = field(default_factory=list)
    """Steps of the keep_last most recent scheduled checkpoints. Those saved on a stop signal are not among them: an
    interruption must not change which checkpoints are averaged or rolled back to."""
    history: list[float] = field(default_factory=list)
    """Validation nlls before averaging started, for the trigger of NT-ASGD."""
    average_start: int | None = None
    """The step at which NT-ASGD started to average; None where it has not."""
    stale: int = 0
    """Evaluations since the best one, or since the plateau schedule last reduced the learning rate."""
    lowered: int = 0
    """How often the plateau schedule has reduced the learning rate."""
    waited: int = 0
    """Evaluations since the best one, for early stopping."""
    early: int | None = None
    """Total steps of the recipe when early stopping ended the training; None while it has not."""
    trend: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Moving mean, variance and count of the loss, for spike detection (`Trend`)."""
    worse: int = 0
    """Log lines in a row whose loss was worse than chance."""
    skipped: list[int] = field(default_factory=list)
    """Steps without an update, because of a loss spike."""
    micro_batch: int | None = None
    """Micro-batch size found after out-of-memory errors (micro_batch_size = "auto")."""
    epoch_loss: float = 0.0
    """Sums over the current epoch."""
    epoch_count: int = 0
    interval_loss: float = 0.0
    """Sums since the last log line."""
    interval_tokens: int = 0
    interval_seconds: float = 0.0
    gradient_norm: float = 0.0
    """Of the last update, which a log line at a skipped step repeats."""

    @classmethod
    def read(cls, progress: Mapping[str, Any]) -> TrainerState:
        """The state that a checkpoint holds, read strictly."""
        state = to_record(dict(progress), cls, Path("the progress of a checkpoint"))
        if len(state.trend) != 3:
            raise UserError("the progress of a checkpoint is damaged: its trend needs 3 numbers. Train again.")
        return state

    @property
    def kept_steps(self) -> list[int]:
        """Steps whose checkpoints must be kept."""
        return sorted({*self.recent, *(step for _, step in self.ranking)})


class LogInterval:
    """Sums since the last log line, on the device: reading them after each step would synchronize a GPU."""

    def __init__(self, device: torch.device, loss: float = 0.0, tokens: int = 0, seconds: float = 0.0):
        self.loss = torch.full((), loss, dtype=accumulator_dtype(device), device=device)
        self.tokens = tokens
        self.seconds = seconds
        self.bad_step = torch.full((), -1, dtype=torch.long, device=device)
        """The first step with a loss or gradient that is not finite; -1 without one."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


def record_evaluation(progress: TrainerState, nll: float, config: TrainingConfig, steps: int) -> None:
    """Updates the state after an evaluation: best checkpoint, ranking, NT-ASGD's trigger, plateau schedule and early
    stopping."""
    improved = progress.best is None or nll < progress.best
    if improved:
        progress.best, progress.best_step = nll, progress.step
    progress.stale = 0 if improved else progress.stale + 1
    progress.waited = 0 if improved else progress.waited + 1
    # Ties rank by step: of equal scores the older checkpoint stays, as for the best.
    progress.ranking = sorted([*progress.ranking, (nll, progress.step)])[: config.keep_best]
    if config.asgd_trigger is not None and progress.average_start is None:
        if is_triggered(progress.history, nll, config.asgd_trigger):
            progress.average_start = progress.step
        progress.history.append(nll)
    if config.schedule == "plateau" and progress.stale >= config.plateau_patience:
        progress.lowered, progress.stale = progress.lowered + 1, 0
    if config.patience is not None and progress.waited >= config.patience:
        progress.early = steps


def final_checkpoints(progress: TrainerState, config: TrainingConfig) -> list[int]:
    """Steps of the checkpoints that the final weights come from, averaged where there are several."""
    if config.weights == "average-last":
        return progress.recent
    if progress.best_step is None or config.weights == "last":
        return [progress.step]
    return [progress.best_step] if config.weights == "best" else sorted(step for _, step in progress.ranking)
