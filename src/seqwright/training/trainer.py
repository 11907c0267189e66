"""The training loop: optimizer steps that can be interrupted at any point and resumed bit for bit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch, accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import CarriesState, Feed, Trainable
from seqwright.core.ranks import SINGLE, Ranks, TensorGroups
from seqwright.core.state import State
from seqwright.training import machine
from seqwright.training.accumulation import refuse_idle_ranks
from seqwright.training.averaging import WeightAverage, weight_average
from seqwright.training.checkpoint_store import CheckpointStore, RankStore
from seqwright.training.checkpoint_tensors import gathered_groups, load_groups
from seqwright.training.config import TrainingConfig
from seqwright.training.divergence import MAX_WORSE, DivergenceCheck, DivergenceError
from seqwright.training.layer_freezing import LayerFreezing
from seqwright.training.meta_weights import MetaWeights
from seqwright.training.mfu import Utilization
from seqwright.training.objective import Objective
from seqwright.training.optimizer import optimizer
from seqwright.training.prefetch import Prefetched
from seqwright.training.schedule import length_ratio, schedule, warmup_steps
from seqwright.training.shapes import padding
from seqwright.training.signals import StopRequest
from seqwright.training.spikes import Trend
from seqwright.training.trainer_state import LogInterval, TrainerState, record_evaluation
from seqwright.training.update import Update

MAX_SKIPPED_STEPS = 50
"""Steps skipped because of loss spikes, above which training stops with an error: something else is wrong."""


class Trainer:
    """Trains a model on a feed, alone or as one of several ranks with the same arguments.

    Callbacks: `evaluate` returns validation scores with "nll", or None; `sample` returns output texts for the log;
    `format_batch` shows a batch in error messages; `reporter` is called after every step. `chance` is the nll of a
    uniform guess: a training that gets worse raises DivergenceError. Of several ranks, only rank 0 calls `sample`
    and `store`, and `evaluate` where the model is sharded.
    """

    def __init__(
        self,
        model: nn.Module,
        feed: Feed,
        config: TrainingConfig,
        store: CheckpointStore,
        *,
        evaluate: Callable[[], Mapping[str, Any] | None] = lambda: None,
        sample: Callable[[], list[dict[str, str]]] | None = None,
        format_batch: Callable[[Batch], str] = lambda batch: str(batch.input[0].tolist()),
        reporter: Progress = SILENT,
        chance: float | None = None,
        ranks: Ranks = SINGLE,
    ):
        config.check_feed(carried=feed.carried)
        ranks = replace(ranks, tensor=config.tensor_parallel if ranks.size > 1 and config.parallel == "fsdp" else 1)
        refuse_idle_ranks(feed, ranks)
        self.device = machine.device(config.device)
        meta = MetaWeights(model, ranks, self.device) if ranks.size > 1 and config.parallel == "fsdp" else None
        self.model, self.ranks = model.to(self.device) if meta is None else meta.model, ranks
        objective = Objective(
            cast(Trainable, self.model),
            smoothing=config.label_smoothing,
            r_drop=config.r_drop,
            auxiliary=config.auxiliary_loss_weight,
            activation_l2=config.activation_l2,
            temporal_activation_l2=config.temporal_activation_l2,
        )
        self.objective = machine.prepare(objective, config, self.device, ranks, meta)
        self.optimizer = optimizer(self.model, config, ranks, self.objective.shards)
        self.update = Update(self.objective, self.optimizer, config, self.device, ranks=ranks, split=self._split)
        self.freezing = LayerFreezing(self.model, config, feed.steps_per_epoch)
        self.steps = total_steps(config, feed)
        warmup = warmup_steps(config, self.steps)
        self.divergence = DivergenceCheck(chance=chance, warmup=warmup, rate=config.learning_rate)
        if self.device.type == "cuda":
            shapes = [padding(model, config)] if self.update.capturing else []
            feed = Prefetched(feed, self.steps, *shapes)
        self.feed = feed
        self.config = config
        self.store: CheckpointStore = store if ranks.size == 1 else RankStore(store, ranks)
        self.evaluate, self.sample, self.format_batch, self.reporter = evaluate, sample, format_batch, reporter
        self.lr_ratio = schedule(config.schedule, steps=self.steps, warmup=warmup, final=config.final_lr_ratio)
        self.progress = TrainerState()
        self.carry: State | None = None
        self._average = weight_average(self.model, self.optimizer, config, self.objective.shards)
        self.epoch_loss = torch.zeros((), dtype=accumulator_dtype(self.device), device=self.device)
        self.interval = LogInterval(self.device)
        self.norm = self.step_loss = torch.zeros((), device=self.device)
        self.last_loss: float | None = None
        self.utilization = Utilization(self.model, self.device, ranks.size)

    def fit(self) -> str | None:
        """Trains until the last step, early stopping or a stop signal; returns the signal's name, or None."""
        every = self.config.intervals(self.steps)
        if self.config.spike_threshold is not None and not self.progress.recent:
            self._record_checkpoint(0)
            self.save()  # so that there is always a checkpoint to roll back to
        with StopRequest() as stop, machine.determinism(self.config.deterministic):
            while not self.finished:
                self.timed_step()
                if self._spiked():
                    self._roll_back()
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
                if due or self.finished:
                    self._record_checkpoint(step)
                # Read once: a signal after this line must not end training without a checkpoint.
                signal = stop.agreed(self.ranks)
                if due or self.finished or signal or any(step == ranked for _, ranked in self.progress.ranking):
                    self.save()
                if signal:
                    return signal
        return None

    @property
    def evaluated(self) -> nn.Module:
        """The model that `evaluate` and `sample` compute with on rank 0: this one, or its unsharded copy."""
        return self.objective.unsharded or self.model

    @property
    def finished(self) -> bool:
        """Whether the last step was taken, or early stopping ended the training."""
        return self.progress.step >= self.steps or self.progress.early is not None

    def restore(self, groups: TensorGroups | None, progress: Mapping[str, Any]) -> None:
        """Restores the trainer from a checkpoint; of several ranks, rank 0 has its tensors."""
        self.progress = TrainerState.read(progress)
        carry = load_groups(groups, self.model, self.optimizer, self.average, self.objective, self.ranks)
        self.update.release()
        if self.progress.early is not None and self.steps > self.progress.early:  # the recipe now has more steps
            self.progress.early, self.progress.waited = None, 0
        self.epoch_loss.fill_(self.progress.epoch_loss)
        self.interval = LogInterval(
            self.device, self.progress.interval_loss, self.progress.interval_tokens, self.progress.interval_seconds
        )
        self.norm = torch.tensor(self.progress.gradient_norm, device=self.device)
        self.carry = None
        if carry:
            batch = self.feed.batch(self.progress.step)
            assert isinstance(self.model, CarriesState)
            start = self.model.start_carried(batch.rows, batch.input.size(1))
            mine = torch.arange(batch.rows, device=self.device)[self.ranks.rows(batch.rows)]
            self.carry = start.from_tensors(carry).select(mine, mine)

    def save(self) -> None:
        """Saves a checkpoint; resumed training equals uninterrupted training bit for bit."""
        self._refuse_non_finite()
        start = time.perf_counter()
        self.progress.epoch_loss = self.epoch_loss.item()
        self.progress.interval_loss = self.interval.loss.item()
        self.progress.interval_tokens = self.interval.tokens
        self.progress.interval_seconds = self.interval.seconds
        self.progress.gradient_norm = self.norm.item()
        gather = partial(
            gathered_groups, self.model, self.optimizer, self.average, self.carry, self.objective, self.ranks
        )
        progress = asdict(self.progress) | {"ranking": [list(ranked) for ranked in self.progress.ranking]}
        self.store.save(self.progress.step, gather, progress, self.progress.kept_steps)
        self.progress.saving_seconds += time.perf_counter() - start

    def timed_step(self) -> None:
        """One optimizer step, timed and reported."""
        with self._timed():
            self._step()
        loss = self.last_loss
        if self.device.type == "cpu" and self.interval.tokens:  # a GPU would be waited for
            loss = self.interval.loss.item() / self.interval.tokens
        self.reporter.step(self.progress.step, self.steps, loss, self.interval.tokens_per_second)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Context manager that counts its time as that of steps."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.progress.seconds += seconds
        self.interval.seconds += seconds

    def _step(self) -> None:
        """One optimizer step on one batch of the feed, or none where the step is skipped."""
        step = self.progress.step
        if step in self.progress.skipped:
            self.progress.step += 1
            if step % self.feed.steps_per_epoch == 0:
                self.carry = None  # carried states still reset with the epoch
            return
        if not self.model.training:  # after an evaluation; train() walks through every module
            self.model.train()
        if self.freezing(step):
            self.update.release()
        batch = self.feed.batch(step)
        self.update.set_learning_rate(self.learning_rate(step) * length_ratio(self.config, batch.input.size(1)))
        loss, norm, self.carry = self.update(
            batch, self._carried(batch, step), step, micro_batch=self.progress.micro_batch
        )
        if self.average is not None:
            self.average.update(step + 1, self.progress.average_start)
        self._account(loss, batch.count, norm)
        if step == 0:
            self.progress.initial_loss = self.step_loss.item()

    @property
    def average(self) -> WeightAverage | None:
        """The average of the weights: an EMA, schedule-free's, or that of NT-ASGD once it was triggered."""
        waits = self.config.asgd_trigger is not None and self.progress.average_start is None
        return None if waits else self._average

    def _split(self, rows: int) -> None:
        """Keeps the size of micro-batches that fit into memory."""
        self.progress.micro_batch = rows
        self.store.log({"kind": "memory", "step": self.progress.step, "micro_batch_size": rows})

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, before the lr_scale of parameter groups."""
        config = self.config
        plateau = (
            max(config.final_lr_ratio, config.plateau_factor**self.progress.lowered) if self.progress.lowered else 1.0
        )
        return config.learning_rate * self.lr_ratio(step) * plateau

    def _spiked(self) -> bool:
        """Whether the loss of the last step is a spike; updates the trend where it is not."""
        if self.config.spike_threshold is None or self.progress.step - 1 in self.progress.skipped:
            return False
        loss = self.step_loss.item() if self.norm.isfinite() else math.inf
        trend = Trend(*self.progress.trend)
        if trend.is_spike(loss, self.config.spike_threshold):
            return True
        self.progress.trend = list(trend.updated(loss))
        return False

    def _roll_back(self) -> None:
        """Continues from the last scheduled checkpoint, skipping the batch that spiked and the one before it.

        A function of the checkpointed state alone: a run that is killed here finds the same spike again.
        """
        at, back = self.progress.step - 1, self.progress.recent[-1]
        skipped = sorted({*self.progress.skipped, max(back, at - 1), at})
        if len(skipped) > MAX_SKIPPED_STEPS:
            raise UserError(
                f"the loss keeps spiking, now at step {at + 1}; more than {MAX_SKIPPED_STEPS} steps would be skipped. "
                "Lower training.learning_rate, raise training.warmup_steps, or raise training.spike_threshold."
            )
        loss = self.step_loss.item()
        self.restore(*self.store.load(back))
        self.progress.skipped = skipped
        self.store.rewind(back)
        self.save()
        self.store.log({"kind": "spike", "step": back, "at": at + 1, "loss": loss, "skipped": skipped})

    def _carried(self, batch: Batch, step: int) -> State | None:
        """The state carried from the previous step (truncated BPTT); reset at the start of each epoch."""
        if not self.feed.carried:
            return None
        if self.carry is None or step % self.feed.steps_per_epoch == 0:
            assert isinstance(self.model, CarriesState)
            return self.model.start_carried(len(self.ranks.rows(batch.rows)), batch.input.size(1))
        return self.carry

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
        # Checked on the device; the host reads it when it logs, evaluates or saves.
        bad = ~(loss + norm).isfinite() & (interval.bad_step < 0)
        interval.bad_step = torch.where(bad, self.progress.step - 1, interval.bad_step)

    def _log(self) -> None:
        self._refuse_non_finite()
        progress = self.progress
        if not self.interval.tokens:  # every step since the last log line was skipped
            return
        self.last_loss = self.interval.loss.item() / max(1, self.interval.tokens)
        self.store.log(
            {
                "kind": "train",
                "step": progress.step,
                "seconds": round(progress.seconds, 3),
                "epoch": round(progress.step / self.feed.steps_per_epoch, 4),
                "loss": self.last_loss,
                "learning_rate": self.learning_rate(progress.step - 1),
                "gradient_norm": self.norm.item(),
                "tokens": progress.tokens,
                "tokens_per_second": round(self.interval.tokens_per_second, 1),
            }
            | self.utilization.record(self.interval.tokens_per_second)
        )
        self.interval = LogInterval(self.device)
        worse = self.divergence.is_worse(self.last_loss, step=progress.step, initial=progress.initial_loss)
        progress.worse = progress.worse + 1 if worse else 0
        if progress.worse >= MAX_WORSE:
            self._refuse_divergence()

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
        with self._evaluated_weights():
            scores = self.objective.evaluate(self.evaluate)
        progress = self.progress
        if scores is None:
            if progress.step == self.steps:
                self._refuse_divergence()
            return
        if not math.isfinite(scores["nll"]):
            raise DivergenceError(
                f"the validation loss is not finite at step {progress.step}: the weights diverged."
                " Lower training.learning_rate or raise training.warmup_steps."
            )
        self.store.log({"kind": "evaluation", "step": progress.step, "seconds": round(progress.seconds, 3), **scores})
        self._refuse_divergence(scores["nll"])
        record_evaluation(progress, scores["nll"], self.config, self.steps)
        if self.average is not None and progress.average_start == progress.step:
            self.average.update(progress.step, progress.average_start)
            self.store.log({"kind": "averaging", "step": progress.step})
        if progress.early is not None:
            self.store.log({"kind": "early", "step": progress.step, "best_step": progress.best_step})

    def _sample(self) -> None:
        assert self.sample is not None
        with self._evaluated_weights():
            texts = self.ranks.from_first(self.sample)
        for text in texts:
            self.store.log({"kind": "sample", "step": self.progress.step, **text})

    @contextmanager
    def _evaluated_weights(self) -> Iterator[None]:
        """Context manager under which `evaluated` has the current weights, averaged where they are."""
        averaged = nullcontext() if self.average is None else self.average.applied()
        with averaged, self.objective.evaluated(self.device):
            yield

    def _record_checkpoint(self, step: int) -> None:
        self.progress.recent = [*self.progress.recent, step][-self.config.keep_last :]

    def _refuse_divergence(self, nll: float = math.inf) -> None:
        loss = self.last_loss
        if loss is None:  # no log line yet
            loss = self.interval.loss.item() / max(1, self.interval.tokens)
        self.divergence.refuse(step=self.progress.step, loss=loss, nll=nll, initial=self.progress.initial_loss)

    def _refuse_non_finite(self) -> None:
        if self.device.type != "cpu":
            with self._timed():  # steps were launched, not waited for
                machine.synchronize(self.device)
        bad = int(self.interval.bad_step.item())
        if bad >= 0:
            raise DivergenceError(
                f"the loss or its gradient is not finite at step {bad + 1}, on the batch that starts with\n"
                f"    {self.format_batch(self.feed.batch(bad))}\n"
                "The last checkpoint is from before. Lower training.learning_rate, raise training.warmup_steps, or fix"
                " that text."
            )


def total_steps(config: TrainingConfig, feed: Feed) -> int:
    """Total optimizer steps of a recipe on this feed."""
    if config.epochs is not None:
        return max(1, round(config.epochs * feed.steps_per_epoch))
    return config.steps or 2000
