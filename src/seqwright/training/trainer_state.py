"""What a training remembers beside weights, optimizer and carried state, and what validation makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from seqwright.training.config import TrainingConfig


@dataclass
class Progress:
    """Plain numbers, written to the checkpoint as they are."""

    step: int = 0
    seconds: float = 0.0
    """Spent in steps; evaluations, samples and checkpoints are not counted."""
    tokens: int = 0
    best: float | None = None
    """The lowest validation nll so far, and the step it was seen at."""
    best_step: int | None = None
    ranking: list[tuple[float, int]] = field(default_factory=list)
    """The best few evaluations as [nll, step], best first."""
    recent: list[int] = field(default_factory=list)
    """Steps of the last few checkpoints that were due; those made when asked to stop are not among them."""
    stale: int = 0
    """Evaluations since the best one, or since the rate was last lowered."""
    lowered: int = 0
    """How often the plateau schedule has lowered the rate."""
    waited: int = 0
    """Evaluations since the best one."""
    early: int | None = None
    """The steps that were asked for when early stopping ended the training."""
    trend: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """The recent course of the loss, for finding spikes."""
    skipped: list[int] = field(default_factory=list)
    """Steps that take no update, because the loss spiked there."""
    micro_batch: int | None = None
    """Rows computed at a time, where memory asked for fewer than the recipe."""
    epoch_loss: float = 0.0
    """Sums over the epoch under way."""
    epoch_count: int = 0
    interval_loss: float = 0.0
    """Sums since the last line of the log."""
    interval_tokens: int = 0
    interval_seconds: float = 0.0
    gradient_norm: float = 0.0
    """Of the last update: a line of the log may fall among skipped steps, and says it all the same."""

    @property
    def kept(self) -> list[int]:
        """Steps whose checkpoints are still needed."""
        return sorted({*self.recent, *(step for _, step in self.ranking)})


class Interval:
    """Sums since the last line of the log, kept on the device: asking a GPU after each step would make it wait."""

    def __init__(self, device: torch.device, loss: float = 0.0, tokens: int = 0, seconds: float = 0.0):
        self.loss = torch.full((), loss, dtype=wide(device), device=device)
        self.tokens = tokens
        self.seconds = seconds
        self.bad_step = torch.full((), -1, dtype=torch.long, device=device)
        """The first step whose loss or gradient was not finite."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


def judge(progress: Progress, nll: float, config: TrainingConfig, steps: int) -> None:
    """Takes note of an evaluation: the best so far, a rate to be lowered, a training to be ended early."""
    better = progress.best is None or nll < progress.best
    if better:
        progress.best, progress.best_step = nll, progress.step
    progress.stale = 0 if better else progress.stale + 1
    progress.waited = 0 if better else progress.waited + 1
    # Sorting is stable and the newest comes last: of equals the older one stays, as for the best.
    progress.ranking = sorted([*progress.ranking, (nll, progress.step)])[: config.keep_best]
    if config.schedule == "plateau" and progress.stale >= config.plateau_patience:
        progress.lowered, progress.stale = progress.lowered + 1, 0
    if config.patience is not None and progress.waited >= config.patience:
        progress.early = steps


def chosen_steps(progress: Progress, config: TrainingConfig) -> list[int]:
    """The checkpoints whose weights, averaged where there are several, a training ends with."""
    if config.weights == "average-last":
        return progress.recent
    if progress.best_step is None or config.weights == "last":
        return [progress.step]
    return [progress.best_step] if config.weights == "best" else sorted(step for _, step in progress.ranking)


def wide(device: torch.device) -> torch.dtype:
    """The dtype in which many losses are added up."""
    return torch.float32 if device.type == "mps" else torch.float64
