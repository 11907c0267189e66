"""The laws of training and saving, for models that gradients reach: asked and answered as those of `laws.py`."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqwright.core.batch import Batch
from seqwright.core.protocols import Trainable
from seqwright.core.storage import load_tensors, save_tensors
from seqwright.studies.laws import Law, gap
from seqwright.training.accumulation import select_rows
from seqwright.training.config import TrainingConfig
from seqwright.training.objective import Objective
from seqwright.training.trainer import TensorGroups, Trainer
from seqwright.training.weights import load_weights, weights


def accumulated_is_one_batch(model: Any, batch: Batch) -> float:
    """The gradient of a batch = the sum of its rows' gradients over the tokens of all."""

    def gradients(parts: list[Batch]) -> list[Tensor]:
        own = copy.deepcopy(model)
        objective = Objective(cast(Trainable, own))
        for part in parts:
            total, _, _ = objective(part)
            (total / batch.count).backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in own.parameters()]

    with torch.enable_grad():
        whole = gradients([batch])
        pieces = gradients([select_rows(batch, torch.tensor([row])) for row in range(batch.rows)])
    return max(gap(one, other) for one, other in zip(whole, pieces, strict=True))


def resumed_is_uninterrupted(model: Any, batch: Batch) -> float:
    """Two steps = one step, a checkpoint, and one step by a trainer that knows nothing but the checkpoint."""
    with torch.enable_grad():
        whole = _trainer(model, batch)
        whole.fit()
        begun = _trainer(model, batch)
        begun.steps = 1
        begun.fit()
        resumed = _trainer(model, batch)
        resumed.restore(*_kept(begun).last)
        resumed.fit()
    ends = [weights(trainer.model) for trainer in (whole, resumed)]
    return max(gap(ends[0][name], ends[1][name]) for name in ends[0])


def saved_is_opened(model: Any, batch: Batch) -> float:
    """What is written to a file and read into an empty model answers as before."""
    empty = copy.deepcopy(model)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for parameter in empty.parameters():
            parameter.zero_()
        path = Path(folder) / "model.safetensors"
        save_tensors(path, weights(model))
        load_weights(empty, load_tensors(path)[0])
        return gap(empty(batch), model(batch))


TRAINING_LAWS: dict[str, Law] = {
    "accumulated = one batch": accumulated_is_one_batch,
    "resumed = uninterrupted": resumed_is_uninterrupted,
    "saved = opened": saved_is_opened,
}


@dataclass
class _Kept:
    """The last checkpoint, in memory."""

    last: tuple[TensorGroups, dict[str, Any]] = field(default_factory=lambda: ({}, {}))

    def log(self, record: dict[str, Any]) -> None: ...

    def save(self, step: int, groups: TensorGroups, progress: dict[str, Any], kept: list[int]) -> None:
        self.last = copy.deepcopy((groups, progress))

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        return self.last

    def rewind(self, step: int) -> None: ...


@dataclass
class _Rotated:
    """The same rows in another order at each step."""

    rows: Batch
    steps_per_epoch = 2
    carried = False

    def batch(self, step: int) -> Batch:
        return select_rows(self.rows, (torch.arange(self.rows.rows) + step) % self.rows.rows)


def _trainer(model: nn.Module, batch: Batch) -> Trainer:
    config = TrainingConfig(steps=2, warmup_steps=0, schedule="constant", device="cpu", checkpoint_every=1, log_every=1)
    return Trainer(copy.deepcopy(model), _Rotated(batch), config, _Kept())


def _kept(trainer: Trainer) -> _Kept:
    assert isinstance(trainer.store, _Kept)
    return trainer.store
