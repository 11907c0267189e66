"""The training loop: steps of gradient descent that can be stopped anywhere and continued to the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from seqwright.batch import Batch, Source
from seqwright.config import UserError
from seqwright.interface import Feed, State, Trainable
from seqwright.training import machine
from seqwright.training.config import TrainingConfig
from seqwright.training.objective import Objective
from seqwright.training.optimizer import memory, optimizer, remember
from seqwright.training.schedule import schedule
from seqwright.training.signals import StopRequest
from seqwright.training.weights import load_weights, weights

Groups = dict[str, dict[str, Tensor]]


class Keeper(Protocol):
    """Where a training leaves its traces: a run directory, or a list in a test."""

    def log(self, record: dict[str, Any]) -> None: ...

    def save(self, step: int, groups: Groups, progress: dict[str, Any], best: int | None) -> None: ...


class Watcher(Protocol):
    """Who is told after every step."""

    def __call__(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...


@dataclass
class Progress:
    """All that training remembers beside weights, optimizer and carried state."""

    step: int = 0
    seconds: float = 0.0
    """Spent in steps; evaluations, samples and checkpoints are not counted."""
    tokens: int = 0
    best: float | None = None
    """The lowest validation nll so far, and the step it was seen at."""
    best_step: int | None = None
    epoch_loss: float = 0.0
    """Sums over the epoch under way."""
    epoch_count: int = 0
    interval_loss: float = 0.0
    """Sums since the last line of the log."""
    interval_tokens: int = 0
    interval_seconds: float = 0.0


class Interval:
    """Sums since the last line of the log, kept on the device: asking a GPU after each step would make it wait."""

    def __init__(self, device: torch.device, loss: float = 0.0, tokens: int = 0, seconds: float = 0.0):
        self.loss = torch.full((), loss, dtype=_wide(device), device=device)
        self.tokens = tokens
        self.seconds = seconds
        self.bad_step = torch.full((), -1, dtype=torch.long, device=device)
        """The first step whose loss or gradient was not finite."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


class Trainer:
    """Fits a model to a feed. `evaluate` returns scores with "nll", or None; `sample` texts for the log."""

    def __init__(
        self,
        model: nn.Module,
        feed: Feed,
        config: TrainingConfig,
        keeper: Keeper,
        *,
        evaluate: Callable[[], dict[str, Any] | None] = lambda: None,
        sample: Callable[[], list[dict[str, str]]] | None = None,
        show: Callable[[Batch], str] = lambda batch: str(batch.input[0].tolist()),
        watch: Watcher = lambda step, steps, loss, tokens_per_second: None,
    ):
        self.device = machine.device(config.device)
        self.model = model.to(self.device)
        self.objective = Objective(cast(Trainable, self.model), smoothing=config.smoothing)
        self.optimizer = optimizer(self.model, config)
        self.feed, self.config, self.keeper = feed, config, keeper
        self.evaluate, self.sample, self.show, self.watch = evaluate, sample, show, watch
        self.steps = total_steps(config, feed)
        self.share = schedule(
            config.schedule, steps=self.steps, warmup=min(config.warmup, self.steps // 2), final=config.final
        )
        self.progress = Progress()
        self.carry: State | None = None
        self.epoch_loss = torch.zeros((), dtype=_wide(self.device), device=self.device)
        self.interval = Interval(self.device)
        self.norm = torch.zeros((), device=self.device)
        self.last_loss: float | None = None

    def fit(self) -> str | None:
        """Trains until the last step or until asked to stop; None, or what asked."""
        every = self._intervals()
        with StopRequest() as stop, machine.determinism(self.config.deterministic):
            while self.progress.step < self.steps:
                self._timed_step()
                step, last = self.progress.step, self.progress.step == self.steps
                self._maybe_end_epoch()
                if step % self.config.log_every == 0 or last:
                    self._log()
                if last or (every["evaluate"] and step % every["evaluate"] == 0):
                    self._evaluate()
                if self.sample and (last or (every["sample"] and step % every["sample"] == 0)):
                    for text in self.sample():
                        self.keeper.log({"kind": "sample", "step": step, **text})
                due = every["checkpoint"] and step % every["checkpoint"] == 0
                asked = stop.reason  # looked at once: a signal that comes while leaving would find nothing saved
                if due or last or asked or self.progress.best_step == step:
                    self.save()
                if asked:
                    return asked
        return None

    def restore(self, groups: Groups, progress: Mapping[str, Any]) -> None:
        """Becomes the trainer that wrote this checkpoint."""
        load_weights(self.model, groups["model"])
        remember(self.optimizer, self.model, groups["optimizer"])
        self.progress = Progress(**progress)
        self.epoch_loss.fill_(self.progress.epoch_loss)
        self.interval = Interval(
            self.device, self.progress.interval_loss, self.progress.interval_tokens, self.progress.interval_seconds
        )
        if "carry" in groups:
            self.carry = self._start(self.feed.batch(self.progress.step).rows).filled(groups["carry"])

    def save(self) -> None:
        """Leaves a checkpoint from which training goes on as if it had never stopped."""
        self._refuse_non_finite()
        self.progress.epoch_loss = self.epoch_loss.item()
        self.progress.interval_loss = self.interval.loss.item()
        self.progress.interval_tokens = self.interval.tokens
        self.progress.interval_seconds = self.interval.seconds
        groups = {"model": weights(self.model), "optimizer": memory(self.optimizer, self.model)}
        if self.carry is not None:
            groups["carry"] = {name: tensor.contiguous() for name, tensor in self.carry.tensors()}
        self.keeper.save(self.progress.step, groups, asdict(self.progress), self.progress.best_step)

    def _timed_step(self) -> None:
        begun = time.perf_counter()
        self._step()
        spent = time.perf_counter() - begun
        self.progress.seconds += spent
        self.interval.seconds += spent
        self.watch(self.progress.step, self.steps, self.last_loss, self.interval.tokens_per_second)

    def _step(self) -> None:
        """One update from one batch of the feed."""
        step, config = self.progress.step, self.config
        machine.seed_step(config.seed, step)
        self.model.train()
        batch = self.feed.batch(step)
        count = batch.count
        state = self._carried(batch.rows, step)
        afters: list[State] = []
        loss = torch.zeros_like(self.epoch_loss)
        for rows in torch.split(torch.arange(batch.rows), config.micro_batch or batch.rows):
            part = take(batch, rows).to(self.device, non_blocking=True)
            before = None if state is None else state.select(rows.to(self.device), rows.to(self.device))
            with machine.autocast(self.device, config.precision):
                total, _, after = self.objective(part, before)
            (total / max(count, 1)).backward()
            loss += total.detach()
            if after is not None:
                afters.append(after.detach())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip or math.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = config.rate * self.share(step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.carry = joined(afters)
        self._account(loss, count, norm)

    def _carried(self, rows: int, step: int) -> State | None:
        """The state that the rows of this step continue from; rows begin afresh with each epoch."""
        if not self.feed.carried:
            return None
        if self.carry is None or step % self.feed.steps_per_epoch == 0:
            return self._start(rows)
        return self.carry

    def _start(self, rows: int) -> State:
        return self.model.start(Source.nothing(rows, self.device), capacity=0)  # type: ignore[operator]

    def _account(self, loss: Tensor, count: int, norm: Tensor) -> None:
        self.progress.step += 1
        self.progress.tokens += count
        self.progress.epoch_count += count
        self.epoch_loss += loss
        self.norm = norm
        interval = self.interval
        interval.loss += loss
        interval.tokens += count
        bad = ~(loss.isfinite() & norm.isfinite()) & (interval.bad_step < 0)
        interval.bad_step = torch.where(bad, self.progress.step - 1, interval.bad_step)

    def _log(self) -> None:
        self._refuse_non_finite()
        progress = self.progress
        self.last_loss = self.interval.loss.item() / max(1, self.interval.tokens)
        self.keeper.log(
            {
                "kind": "train",
                "step": progress.step,
                "seconds": round(progress.seconds, 3),
                "epoch": round(progress.step / self.feed.steps_per_epoch, 4),
                "loss": self.last_loss,
                "rate": self.config.rate * self.share(progress.step - 1),
                "gradient_norm": self.norm.item(),
                "tokens": progress.tokens,
                "tokens_per_second": round(self.interval.tokens_per_second, 1),
            }
        )
        self.interval = Interval(self.device)

    def _maybe_end_epoch(self) -> None:
        progress = self.progress
        if progress.step % self.feed.steps_per_epoch:
            return
        mean = self.epoch_loss.item() / max(1, progress.epoch_count)
        epoch = progress.step // self.feed.steps_per_epoch
        self.keeper.log({"kind": "epoch", "step": progress.step, "epoch": epoch, "loss": mean})
        self.epoch_loss.zero_()
        progress.epoch_count = 0

    def _evaluate(self) -> None:
        self._refuse_non_finite()
        scores = self.evaluate()
        if scores is None:
            return
        progress = self.progress
        self.keeper.log({"kind": "evaluation", "step": progress.step, "seconds": round(progress.seconds, 3), **scores})
        if progress.best is None or scores["nll"] < progress.best:
            progress.best, progress.best_step = scores["nll"], progress.step

    def _refuse_non_finite(self) -> None:
        bad = int(self.interval.bad_step.item())
        if bad >= 0:
            raise UserError(
                f"the loss or its gradient is no longer finite at step {bad + 1}, on the batch that begins with\n"
                f"    {self.show(self.feed.batch(bad))}\n"
                "The last checkpoint is older than that. Lower training.rate, raise training.warmup, or mend that text."
            )

    def _intervals(self) -> dict[str, int]:
        config = self.config
        evaluate = config.evaluate_every if config.evaluate_every is not None else max(1, self.steps // 10)
        others = {"sample": config.sample_every, "checkpoint": config.checkpoint_every}
        return {"evaluate": evaluate} | {k: evaluate if v is None else v for k, v in others.items()}


def total_steps(config: TrainingConfig, feed: Feed) -> int:
    """How many steps the recipe asks for on this feed."""
    if config.epochs is not None:
        return max(1, round(config.epochs * feed.steps_per_epoch))
    return config.steps or 2000


def take(batch: Batch, rows: Tensor) -> Batch:
    """These rows of a batch."""
    if len(rows) == batch.rows:
        return batch
    return replace(batch, source=batch.source.select(rows), input=batch.input[rows], target=batch.target[rows])


def joined(states: list[State]) -> State | None:
    """The states of consecutive micro-batches as one."""
    whole = states[0] if states else None
    for state in states[1:]:
        assert whole is not None
        whole = whole.join(state)
    return whole


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
