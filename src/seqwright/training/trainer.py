"""The training loop: steps of gradient descent that can be stopped anywhere and continued to the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Feed, State, Trainable
from seqwright.training import machine
from seqwright.training.accumulation import accumulate, out_of_memory
from seqwright.training.averaging import EMA
from seqwright.training.config import TrainingConfig
from seqwright.training.layer_freezing import LayerFreezing
from seqwright.training.objective import Objective
from seqwright.training.optimizer import load_optimizer_state, optimizer, optimizer_state
from seqwright.training.schedule import schedule
from seqwright.training.signals import StopRequest
from seqwright.training.spikes import Trend
from seqwright.training.trainer_state import Interval, Progress, judge, wide
from seqwright.training.weights import load_weights, weights

Groups = dict[str, dict[str, Tensor]]

LESS_TO_REMEMBER = 'set training.optimizer to "adafactor", or lower model.width or model.layers'
MOST_SKIPPED = 50
"""Steps left out because of spikes, after which training gives up: something else is wrong."""


class CheckpointStore(Protocol):
    """Where a training leaves its traces: a run directory, or a list in a test."""

    def log(self, record: dict[str, Any]) -> None: ...

    def save(self, step: int, groups: Groups, progress: dict[str, Any], kept: list[int]) -> None:
        """Writes a checkpoint; those of the steps in `kept` are still needed."""

    def load(self, step: int) -> tuple[Groups, dict[str, Any]]:
        """A checkpoint that is still there."""
        ...

    def rewind(self, step: int) -> None:
        """Forgets what was logged after a step."""


class Watcher(Protocol):
    """Who is told after every step."""

    def __call__(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None: ...


class Trainer:
    """Fits a model to a feed. `evaluate` returns scores with "nll", or None; `sample` texts for the log."""

    def __init__(
        self,
        model: nn.Module,
        feed: Feed,
        config: TrainingConfig,
        store: CheckpointStore,
        *,
        evaluate: Callable[[], dict[str, Any] | None] = lambda: None,
        sample: Callable[[], list[dict[str, str]]] | None = None,
        show: Callable[[Batch], str] = lambda batch: str(batch.input[0].tolist()),
        watch: Watcher = lambda step, steps, loss, tokens_per_second: None,
    ):
        self.device = machine.device(config.device)
        self.model = model.to(self.device)
        self.objective = Objective(
            cast(Trainable, self.model),
            smoothing=config.label_smoothing,
            r_drop=config.r_drop,
            auxiliary=config.auxiliary_loss_weight,
        )
        self.optimizer = optimizer(self.model, config)
        self.thaw = LayerFreezing(self.model, config, feed.steps_per_epoch)
        self.feed, self.config, self.store = feed, config, store
        self.evaluate, self.sample, self.show, self.watch = evaluate, sample, show, watch
        self.steps = total_steps(config, feed)
        self.share = schedule(
            config.schedule, steps=self.steps, warmup=warmup(config, self.steps), final=config.final_lr_ratio
        )
        self.progress = Progress()
        self.carry: State | None = None
        self.average = None if config.ema_decay is None else EMA(self.model, config.ema_decay)
        self.epoch_loss = torch.zeros((), dtype=wide(self.device), device=self.device)
        self.interval = Interval(self.device)
        self.norm = self.step_loss = torch.zeros((), device=self.device)
        self.last_loss: float | None = None

    def fit(self) -> str | None:
        """Trains until the last step or until asked to stop; None, or what asked."""
        every = self._intervals()
        if self.config.spike_threshold is not None and not self.progress.recent:
            self._remember_step(0)
            self.save()  # so that there is always something to go back to
        with StopRequest() as stop, machine.determinism(self.config.deterministic):
            while not self.over:
                self._timed_step()
                if self._spiked():
                    self._go_back()
                    continue
                step, last = self.progress.step, self.progress.step == self.steps
                self._maybe_end_epoch()
                if step % self.config.log_every == 0 or last:
                    self._log()
                if last or (every["evaluate"] and step % every["evaluate"] == 0):
                    self._evaluate()
                if self.sample and (last or (every["sample"] and step % every["sample"] == 0)):
                    self._sample()
                due = every["checkpoint"] and step % every["checkpoint"] == 0
                if due or self.over:
                    self._remember_step(step)
                asked = stop.reason  # looked at once: a signal that comes while leaving would find nothing saved
                if due or self.over or asked or any(step == ranked for _, ranked in self.progress.ranking):
                    self.save()
                if asked:
                    return asked
        return None

    @property
    def over(self) -> bool:
        """Whether the last step was taken, or early stopping ended the training."""
        return self.progress.step >= self.steps or self.progress.early is not None

    def restore(self, groups: Groups, progress: Mapping[str, Any]) -> None:
        """Becomes the trainer that wrote this checkpoint."""
        load_weights(self.model, groups["model"])
        load_optimizer_state(self.optimizer, self.model, groups["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(groups["ema"])
        self.progress = Progress(**progress)
        self.progress.ranking = [(nll, step) for nll, step in self.progress.ranking]
        if self.progress.early is not None and self.steps > self.progress.early:  # asked for more: another chance
            self.progress.early, self.progress.waited = None, 0
        self.epoch_loss.fill_(self.progress.epoch_loss)
        self.interval = Interval(
            self.device, self.progress.interval_loss, self.progress.interval_tokens, self.progress.interval_seconds
        )
        self.norm = torch.tensor(self.progress.gradient_norm, device=self.device)
        self.carry = None
        if "carry" in groups:
            self.carry = self._start(self.feed.batch(self.progress.step).rows).from_tensors(groups["carry"])

    def save(self) -> None:
        """Leaves a checkpoint from which training goes on as if it had never stopped."""
        self._refuse_non_finite()
        self.progress.epoch_loss = self.epoch_loss.item()
        self.progress.interval_loss = self.interval.loss.item()
        self.progress.interval_tokens = self.interval.tokens
        self.progress.interval_seconds = self.interval.seconds
        self.progress.gradient_norm = self.norm.item()
        groups = {"model": weights(self.model), "optimizer": optimizer_state(self.optimizer, self.model)}
        if self.average is not None:
            groups["ema"] = self.average.tensors
        if self.carry is not None:
            groups["carry"] = {name: tensor.contiguous() for name, tensor in self.carry.named_tensors()}
        progress = asdict(self.progress) | {"ranking": [list(ranked) for ranked in self.progress.ranking]}
        self.store.save(self.progress.step, groups, progress, self.progress.kept)

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
        if step in self.progress.skipped:
            self.progress.step += 1
            if step % self.feed.steps_per_epoch == 0:
                self.carry = None  # rows begin afresh all the same
            return
        if not self.model.training:  # since an evaluation; setting it goes through every module
            self.model.train()
        self.thaw(step)
        batch = self.feed.batch(step)
        loss, self.carry = self._gradients(batch, self._carried(batch.rows, step), step)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.max_grad_norm or math.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step) * group["share"]
        with machine.memory_for("what the optimizer remembers", instead=LESS_TO_REMEMBER):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step + 1)
        self._account(loss, batch.count, norm)

    def _gradients(self, batch: Batch, state: State | None, step: int) -> tuple[Tensor, State | None]:
        """The loss sum of a batch and the state after it, its gradients left in the parameters."""
        config, progress = self.config, self.progress
        while True:
            asked = None if config.micro_batch_size == "auto" else config.micro_batch_size
            rows = min(batch.rows, progress.micro_batch or asked or batch.rows)
            machine.seed_step(config.seed, step)
            try:
                with machine.tensor_cores(self.device, config.precision):
                    return accumulate(
                        self.objective, batch, state, rows=rows, device=self.device, precision=config.precision
                    )
            except RuntimeError as error:
                if not machine.is_out_of_memory(error):
                    raise
                if config.micro_batch_size != "auto" or rows == 1:
                    raise out_of_memory(batch, rows) from error
            # Outside the handler, which would keep what the failed attempt holds in memory.
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            progress.micro_batch = -(-rows // 2)
            self.store.log({"kind": "memory", "step": step, "micro_batch_size": progress.micro_batch})

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        config = self.config
        lowered = (
            max(config.final_lr_ratio, config.plateau_factor**self.progress.lowered) if self.progress.lowered else 1.0
        )
        return config.learning_rate * self.share(step) * lowered

    def _spiked(self) -> bool:
        """Whether the loss of the step just taken stands far above the recent ones; follows it where it does not."""
        if self.config.spike_threshold is None or self.progress.step - 1 in self.progress.skipped:
            return False
        loss = self.step_loss.item() if self.norm.isfinite() else math.inf
        trend = Trend(*self.progress.trend)
        if trend.spikes(loss, self.config.spike_threshold):
            return True
        self.progress.trend = list(trend.followed(loss))
        return False

    def _go_back(self) -> None:
        """Goes on from the last checkpoint that was due, without the batch that spiked and the one that led to it.

        Nothing but the checkpointed state decides: a run that is killed here finds the same spike again.
        """
        at, back = self.progress.step - 1, self.progress.recent[-1]
        skipped = sorted({*self.progress.skipped, max(back, at - 1), at})
        if len(skipped) > MOST_SKIPPED:
            raise UserError(
                f"the loss has spiked again and again, now at step {at + 1}; {MOST_SKIPPED} steps were left out. "
                "Lower training.learning_rate, raise training.warmup_steps, or raise training.spike_threshold."
            )
        loss = self.step_loss.item()
        self.restore(*self.store.load(back))
        self.progress.skipped = skipped
        self.store.rewind(back)
        self.save()
        self.store.log({"kind": "spike", "step": back, "at": at + 1, "loss": loss, "skipped": skipped})

    def _carried(self, rows: int, step: int) -> State | None:
        """The state that the rows of this step continue from; rows begin afresh with each epoch."""
        if not self.feed.carried:
            return None
        if self.carry is None or step % self.feed.steps_per_epoch == 0:
            return self._start(rows)
        return self.carry

    def _start(self, rows: int) -> State:
        return self.model.start(Source.empty(rows, self.device), capacity=0)  # type: ignore[operator]

    def _account(self, loss: Tensor, count: int, norm: Tensor) -> None:
        self.step_loss = loss / max(1, count)
        self.progress.step += 1
        self.progress.tokens += count
        self.progress.epoch_count += count
        self.epoch_loss += loss
        self.norm = norm
        interval = self.interval
        interval.loss += loss
        interval.tokens += count
        bad = ~(loss + norm).isfinite() & (interval.bad_step < 0)
        interval.bad_step = torch.where(bad, self.progress.step - 1, interval.bad_step)

    def _log(self) -> None:
        self._refuse_non_finite()
        progress = self.progress
        if not self.interval.tokens:  # every step since the last line was left out
            return
        self.last_loss = self.interval.loss.item() / max(1, self.interval.tokens)
        self.store.log(
            {
                "kind": "train",
                "step": progress.step,
                "seconds": round(progress.seconds, 3),
                "epoch": round(progress.step / self.feed.steps_per_epoch, 4),
                "loss": self.last_loss,
                "learning_rate": self.rate(progress.step - 1),
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
        self.store.log({"kind": "epoch", "step": progress.step, "epoch": epoch, "loss": mean})
        self.epoch_loss.zero_()
        progress.epoch_count = 0

    def _evaluate(self) -> None:
        self._refuse_non_finite()
        with self._averaged():
            scores = self.evaluate()
        if scores is None:
            return
        progress = self.progress
        if not math.isfinite(scores["nll"]):
            raise UserError(
                f"the model has no finite score on the validation data at step {progress.step}: its weights ran away."
                " Lower training.learning_rate or raise training.warmup_steps."
            )
        self.store.log({"kind": "evaluation", "step": progress.step, "seconds": round(progress.seconds, 3), **scores})
        judge(progress, scores["nll"], self.config, self.steps)
        if progress.early is not None:
            self.store.log({"kind": "early", "step": progress.step, "best_step": progress.best_step})

    def _sample(self) -> None:
        assert self.sample is not None
        with self._averaged():
            texts = self.sample()
        for text in texts:
            self.store.log({"kind": "sample", "step": self.progress.step, **text})

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside, the model is the one that will be kept."""
        return nullcontext() if self.average is None else self.average.applied()

    def _remember_step(self, step: int) -> None:
        self.progress.recent = [*self.progress.recent, step][-self.config.keep_last :]

    def _refuse_non_finite(self) -> None:
        bad = int(self.interval.bad_step.item())
        if bad >= 0:
            raise UserError(
                f"the loss or its gradient is no longer finite at step {bad + 1}, on the batch that begins with\n"
                f"    {self.show(self.feed.batch(bad))}\n"
                "The last checkpoint is older than that. Lower training.learning_rate, raise training.warmup_steps, or mend that text."
            )

    def _intervals(self) -> dict[str, int]:
        config = self.config
        evaluate = config.evaluate_every if config.evaluate_every is not None else max(1, self.steps // 10)
        others = {"sample": config.sample_every, "checkpoint": config.checkpoint_every}
        return {"evaluate": evaluate} | {k: evaluate if v is None else v for k, v in others.items()}


def warmup(config: TrainingConfig, steps: int) -> int:
    """Steps of rising rate: as the recipe says, but at most half of them; unsaid, a tenth of them and at most 100."""
    return min(100, steps // 10) if config.warmup_steps is None else min(config.warmup_steps, steps // 2)


def total_steps(config: TrainingConfig, feed: Feed) -> int:
    """How many steps the recipe asks for on this feed."""
    if config.epochs is not None:
        return max(1, round(config.epochs * feed.steps_per_epoch))
    return config.steps or 2000
