"""Laws of training and serialization, for models trained by gradients; of the same form as those of `laws.py`."""

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
from seqwright.core.ranks import TensorGroups
from seqwright.core.storage import load_tensors, save_tensors
from seqwright.studies.laws import Law, max_difference
from seqwright.training.checkpoint_store import Gather
from seqwright.training.config import TrainingConfig
from seqwright.training.objective import Objective
from seqwright.training.trainer import Trainer
from seqwright.training.weights import load_weights, weights


def gradient_accumulation_equals_one_batch(model: Any, batch: Batch) -> float:
    """The gradient of a batch = the accumulated gradients of its rows, each divided by the tokens of the batch."""

    def gradients(parts: list[Batch]) -> list[Tensor]:
        trained = copy.deepcopy(model)
        objective = Objective(cast(Trainable, trained))
        for part in parts:
            total, _, _ = objective(part)
            (total / batch.count).backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in trained.parameters()]

    with torch.enable_grad():
        whole = gradients([batch])
        rows = torch.arange(batch.rows, device=batch.input.device).unsqueeze(1)
        accumulated = gradients([batch.rows_of(row) for row in rows])
    return max(max_difference(one, other) for one, other in zip(whole, accumulated, strict=True))


def resumed_equals_uninterrupted(model: Any, batch: Batch) -> float:
    """Two steps = one step, a checkpoint, and one step of a fresh trainer restored from the checkpoint."""
    with torch.enable_grad():
        uninterrupted = _trainer(model, batch)
        uninterrupted.fit()
        interrupted = _trainer(model, batch)
        interrupted.steps = 1
        interrupted.fit()
        resumed = _trainer(model, batch)
        resumed.restore(*_store(interrupted).last)
        resumed.fit()
    final = [weights(trainer.model) for trainer in (uninterrupted, resumed)]
    return max(max_difference(final[0][name], final[1][name]) for name in final[0])


def captured_equals_plain(model: Any, batch: Batch) -> float:
    """Steps captured as a CUDA graph (warm-up, capture, replays) = steps run kernel by kernel. Elsewhere than on a GPU
    the function to capture is called, with its inputs and outputs where a graph would read and write them."""
    with torch.enable_grad():
        plain, captured = _trainer(model, batch, steps=4, compile="off"), _trainer(model, batch, steps=4)
        captured.update.capturing = True
        for trainer in (plain, captured):
            trainer.fit()
    final = [weights(trainer.model) for trainer in (plain, captured)]
    return max(max_difference(final[0][name], final[1][name]) for name in final[0])


def saved_equals_loaded(model: Any, batch: Batch) -> float:
    """Weights saved to a file and loaded into a zeroed model give the same logits."""
    loaded = copy.deepcopy(model)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for parameter in loaded.parameters():
            parameter.zero_()
        path = Path(folder) / "model.safetensors"
        save_tensors(path, weights(model))
        load_weights(loaded, load_tensors(path)[0])
        return max_difference(loaded(batch), model(batch))


TRAINING_LAWS: dict[str, Law] = {
    "accumulated = one batch": gradient_accumulation_equals_one_batch,
    "resumed = uninterrupted": resumed_equals_uninterrupted,
    "captured = plain": captured_equals_plain,
    "saved = opened": saved_equals_loaded,
}


@dataclass
class _MemoryStore:
    """Checkpoint store that holds the last checkpoint in memory."""

    last: tuple[TensorGroups, dict[str, Any]] = field(default_factory=lambda: ({}, {}))

    def log(self, record: dict[str, Any]) -> None: ...

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        self.last = copy.deepcopy((cast(TensorGroups, gather()), progress))  # one process streams nothing

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        return self.last

    def rewind(self, step: int) -> None: ...


@dataclass
class _RotatedFeed:
    """Feed of the same rows, rotated by one at each step."""

    rows: Batch
    steps_per_epoch = 2
    carried = False

    def batch(self, step: int) -> Batch:
        return self.rows.rows_of((torch.arange(self.rows.rows) + step) % self.rows.rows)


def _trainer(model: nn.Module, batch: Batch, **changes: Any) -> Trainer:
    device = next(model.parameters()).device.type
    settings: dict[str, Any] = {
        "steps": 2,
        "warmup_steps": 0,
        "schedule": "constant",
        "checkpoint_every": 1,
        "log_every": 1,
    }
    config = TrainingConfig(**(settings | {"device": device} | changes))
    return Trainer(copy.deepcopy(model), _RotatedFeed(batch.to("cpu")), config, _MemoryStore())


def _store(trainer: Trainer) -> _MemoryStore:
    assert isinstance(trainer.store, _MemoryStore)
    return trainer.store
