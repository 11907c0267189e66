"""Weight averaging: over steps, exponential (EMA), since a trigger (NT-ASGD) or schedule-free, and the mean of
checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqwright.training.config import TrainingConfig
from seqwright.training.schedule_free import ScheduleFreeAdamW
from seqwright.training.sharded_tensors import Shards, local
from seqwright.training.weights import load_weights, weights


class WeightAverage:
    """An average of a model's weights over steps (Polyak & Juditsky 1992)."""

    def __init__(self, model: nn.Module, ema_decay: float | None):
        self.model, self.ema_decay = model, ema_decay
        named = weights(model)
        self.model_tensors = [tensor.detach() for tensor in named.values()]
        self.tensors = {name: tensor.detach().clone() for name, tensor in named.items()}

    @torch.no_grad()
    def update(self, step: int, start: int | None) -> None:
        """Adds the weights after `step` steps: to an EMA, or to the mean since `start` (the weights of `start` are the
        first)."""
        weight = mean_weight(step, start or 0) if self.ema_decay is None else ema_weight(step, self.ema_decay)
        averages, tensors = ([local(each) for each in named] for named in (self.tensors.values(), self.model_tensors))
        torch._foreach_lerp_(averages, tensors, weight)  # a few fused kernels

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager under which the model has the averaged weights; restores its own afterwards."""
        saved = {name: tensor.detach().clone() for name, tensor in weights(self.model).items()}
        load_weights(self.model, self.tensors)
        try:
            yield
        finally:
            load_weights(self.model, saved)


class ScheduleFreeAverage(WeightAverage):
    """The weights x of schedule-free AdamW, as the average that is evaluated and saved."""

    def __init__(self, model: nn.Module, optimizer: ScheduleFreeAdamW, shards: Shards):
        self.model, self.optimizer, self.shards = model, optimizer, shards

    @property
    def tensors(self) -> dict[str, Tensor]:  # type: ignore[override]
        mine = {name: self.shards.of(tensor) for name, tensor in weights(self.model).items()}
        return {name: self.shards.joined(self.optimizer.averaged(each), each) for name, each in mine.items()}

    def update(self, step: int, start: int | None) -> None:
        """Nothing to do: the optimizer's step has averaged."""

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to load: x follows from the weights and the optimizer's state."""


def weight_average(
    model: nn.Module, optimizer: torch.optim.Optimizer, config: TrainingConfig, shards: Shards
) -> WeightAverage | None:
    """The average of a recipe's weights over steps; None without one."""
    if isinstance(optimizer, ScheduleFreeAdamW):
        return ScheduleFreeAverage(model, optimizer, shards)
    return WeightAverage(model, config.ema_decay) if config.averages_weights else None


def ema_weight(step: int, decay: float) -> float:
    """Weight of the weights after `step` steps in their exponential moving average; the decay warms up, so that the
    random initialization is forgotten early."""
    return 1 - min(decay, step / (step + 10))


def mean_weight(step: int, start: int) -> float:
    """Weight of the weights after `step` steps in the mean of those after `start`, …, `step` steps."""
    return 1 / (step - start + 1)


def is_triggered(history: Sequence[float], nll: float, trigger: int) -> bool:
    """Whether this validation nll starts NT-ASGD after those in `history`: it is worse than the best but for the last
    `trigger` ones (Merity et al. 2018, algorithm 1)."""
    return len(history) > trigger and nll > min(history[:-trigger])


def average_weights(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of a model, computed in float64."""
    return {
        name: torch.stack([checkpoint[name].double() for checkpoint in checkpoints]).mean(0).to(tensor.dtype)
        for name, tensor in checkpoints[0].items()
    }
