"""Trainings that ranks take part in: `python -m tests.training.rank_cases FOLDER`, once for each rank.

Rank 0 writes what came of each case to FOLDER, for tests/training/test_ranks.py.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.core.protocols import Feed
from seqwright.core.ranks import Ranks, evaluation_by
from seqwright.core.safetensors_chunks import StreamedTensors
from seqwright.core.storage import load_tensors, read_json, save_tensors, write_json
from seqwright.layers import linear
from seqwright.layers.inference import packed_linear
from seqwright.layers.lora import add_lora
from seqwright.metrics.likelihood import score_text
from seqwright.tasks.scoring import score_epoch, target_nll
from seqwright.tasks.tagging import scores
from seqwright.training import machine, parallel
from seqwright.training.checkpoint_store import Gather
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer, optimizer_state
from seqwright.training.parallel import GROUP_PARAMETERS
from seqwright.training.process_group import joined
from seqwright.training.sharded_tensors import GradientClipping, Shards, full
from seqwright.training.trainer import Trainer
from tests.contract.encoders import classifier, texts
from tests.contract.taggers import encoded, tagger

from .test_trainer import fresh, gpt, lstm, options, shuffled, slices
from .tiny import MemoryStore, Same, random_ids

STEPS = 7
START = 3
"""Steps that the resumed cases have behind them."""


@dataclass(frozen=True)
class Case:
    """A training of batches of 5, 5 and 4 rows (not divisible by 2), in float64 unless its model is of float32."""

    model: Callable[[], nn.Module]
    feed: Callable[[], Feed]
    config: TrainingConfig
    trainer: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    group: int = 1
    """Parameters that FSDP2 gathers together, at least: 1 is each block alone."""
    compiled: bool = False
    """Traced by torch.compile as on a GPU, without its kernels."""
    onednn: bool = False
    """With oneDNN's products, whatever the processor."""
    tolerance: float = 1e-9


class StopRankOne(Progress):
    """Sends SIGTERM to rank 1 alone, after three steps."""

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        if step == 3 and os.environ.get("RANK") == "1":
            os.kill(os.getpid(), signal.SIGTERM)


def small_gpt() -> nn.Module:
    return fresh(gpt()).double()


def small_lora() -> nn.Module:
    """Adapters alone are trained, besides embeddings and head, and no vector of a block."""
    model = small_gpt()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        add_lora(model, rank=2, alpha=4.0)
    return model


def small_lstm() -> nn.Module:
    return fresh(lstm()).double()


def small_classifier() -> nn.Module:
    return classifier("gpt").train()  # type: ignore[no-any-return]


def small_float32() -> nn.Module:
    return fresh(gpt())  # type: ignore[no-any-return]


def sgd(**changes: Any) -> TrainingConfig:
    return options(steps=STEPS, optimizer="sgd", schedule="constant", learning_rate=0.5, **changes)


def adamw(steps: int = STEPS, **changes: Any) -> TrainingConfig:
    return options(steps=steps, schedule="constant", checkpoint_every=1, keep_last=STEPS, **changes)


def one_row() -> Same:
    """A batch that has no row for rank 0 of 2."""
    batch = shuffled().batch(0)
    return Same(type(batch).of_text(batch.input[:1], batch.target[:1]))


CASES = {
    "ddp": Case(small_gpt, shuffled, adamw()),
    "fsdp": Case(small_gpt, shuffled, adamw(parallel="fsdp")),
    "ddp accumulated": Case(small_gpt, shuffled, adamw(micro_batch_size=2, ema_decay=0.9)),
    "fsdp accumulated": Case(small_gpt, shuffled, adamw(micro_batch_size=2, ema_decay=0.9, parallel="fsdp")),
    "fsdp of both blocks": Case(
        small_gpt, shuffled, adamw(micro_batch_size=2, ema_decay=0.9, parallel="fsdp"), group=GROUP_PARAMETERS
    ),
    "fsdp gathered once": Case(
        small_gpt, shuffled, adamw(micro_batch_size=2, ema_decay=0.9, parallel="fsdp", reshard_after_forward=False)
    ),
    "fsdp streamed": Case(small_gpt, shuffled, adamw(parallel="fsdp", ema_decay=0.9, stream_checkpoints=True)),
    "tensor streamed": Case(
        small_gpt, shuffled, adamw(parallel="fsdp", tensor_parallel=2, stream_checkpoints=True), resumed=True
    ),
    "fsdp offloaded": Case(small_gpt, shuffled, adamw(parallel="fsdp", cpu_offload=True)),
    "ddp carried": Case(small_lstm, slices, adamw(micro_batch_size=1)),
    "ddp of one row": Case(small_gpt, one_row, sgd()),
    "ddp unfrozen": Case(small_classifier, lambda: Same(texts()), sgd(unfreeze_every=2)),
    "fsdp frozen": Case(small_classifier, lambda: Same(texts()), sgd(freeze=1, parallel="fsdp")),
    "ddp muon": Case(small_gpt, shuffled, adamw(optimizer="muon", activation_checkpointing=True)),
    "fsdp muon": Case(
        small_gpt, shuffled, adamw(optimizer="muon", micro_batch_size=2, activation_checkpointing=True, parallel="fsdp")
    ),
    "fsdp compiled": Case(
        small_gpt,
        shuffled,
        adamw(compile="inductor", micro_batch_size=2, activation_checkpointing=True, parallel="fsdp"),
        compiled=True,
    ),
    "fsdp lora": Case(small_lora, shuffled, adamw(micro_batch_size=2, max_grad_norm=0.1, parallel="fsdp")),
    "fsdp schedule-free": Case(
        small_gpt, shuffled, adamw(optimizer="schedule-free", micro_batch_size=2, parallel="fsdp")
    ),
    "fsdp sgd": Case(small_gpt, shuffled, sgd(parallel="fsdp", max_grad_norm=0.1)),
    "ddp onednn": Case(small_float32, shuffled, sgd(micro_batch_size=2), onednn=True, tolerance=1e-5),
    "fsdp onednn": Case(
        small_float32,
        shuffled,
        sgd(micro_batch_size=2, activation_checkpointing=True, parallel="fsdp"),
        onednn=True,
        tolerance=1e-5,
    ),
    "tensor onednn": Case(
        small_float32, shuffled, sgd(parallel="fsdp", tensor_parallel=2), onednn=True, tolerance=1e-5
    ),
    "ddp early": Case(
        small_gpt, shuffled, adamw(evaluate_every=1, patience=2), {"evaluate": lambda: {"nll": 1.0}, "chance": None}
    ),
    "ddp resumed": Case(small_gpt, shuffled, adamw(), resumed=True),
    "fsdp resumed": Case(small_gpt, shuffled, adamw(parallel="fsdp"), resumed=True),
    "tensor": Case(small_gpt, shuffled, adamw(parallel="fsdp", tensor_parallel=2, micro_batch_size=2, ema_decay=0.9)),
    "tensor resumed": Case(small_gpt, shuffled, adamw(parallel="fsdp", tensor_parallel=2), resumed=True),
    "ddp spiked": Case(small_gpt, shuffled, adamw(spike_threshold=1e-9)),
}
"""Trainings whose result equals that of one process."""


def train(case: Case, ranks: Ranks, folder: Path) -> tuple[Trainer, MemoryStore]:
    store = MemoryStore()
    compiling = patch.multiple(machine, CAPTURED={"cpu"}) if case.compiled and ranks.size > 1 else nullcontext()
    traced = patch.object(torch, "compile", partial(torch.compile, backend="aot_eager"))
    onednn = patch.multiple(linear, MIN_PRODUCT=0, prefers_onednn=packed_linear.available)
    with patch.object(parallel, "GROUP_PARAMETERS", case.group), traced, compiling:
        trainer = Trainer(case.model(), case.feed(), case.config, store, ranks=ranks, **case.trainer)
    if case.resumed:
        groups = {name: load_tensors(folder / f"start.{name}.safetensors")[0] for name in ("model", "optimizer")}
        trainer.restore(groups if ranks.first else None, ranks.from_first(lambda: read_json(folder / "start.json")))
    if case.config.spike_threshold is not None:
        trainer.progress.trend = [0.0, 0.0, 30.0]  # every loss is a spike
    try:
        with onednn if case.onednn else nullcontext():
            trainer.fit()
    except UserError as error:
        store.log({"kind": "error", "text": str(error)})
    return trainer, store


def evaluations() -> dict[str, Any]:
    """Scores of a text by windows, of a feed, whose batches have 5, 5 and 4 rows, and of a tagger."""
    model = small_gpt().eval()
    scored = score_text(model, random_ids(1, 100)[0], sos=None, stride=3, batch_size=2)  # type: ignore[arg-type]
    rows = score_epoch(model, shuffled(), target_nll(model), device="cpu")  # type: ignore[arg-type]
    with patch.object(scores, "BATCH_TOKENS", 6):  # several batches
        tagged = scores.predict(tagger("lstm"), encoded())
    return {"text": scored.log_probs.tolist(), "epoch": rows.tolist(), "tags": tagged.tags.tolist(), "nll": tagged.nll}


def evaluate(folder: Path, ranks: Ranks) -> None:
    with evaluation_by(ranks):
        write_json(folder / f"evaluations.{ranks.rank}.json", evaluations())


def save(folder: Path, name: str, trainer: Trainer, store: MemoryStore) -> None:
    step = max(store.saved)
    groups, progress = store.saved[step]
    for group, tensors in groups.items():
        save_tensors(folder / f"{name}.{group}.safetensors", tensors)
    save_tensors(folder / f"{name}.early.safetensors", store.saved[min(store.saved)][0]["model"])
    write_json(folder / f"{name}.json", {"records": store.records, "progress": progress, "step": step})


class FullDisk(MemoryStore):
    """Writes two tensors of a checkpoint, or none, then has no room."""

    def __init__(self, tensors: int):
        super().__init__()
        self.tensors = tensors

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        if self.tensors:
            model = gather()["model"]
            if isinstance(model, StreamedTensors):
                for name in model.names[: self.tensors]:
                    model.read(name)
        raise UserError(f"no room after {self.tensors} tensors.")


def fill_disks(folder: Path, ranks: Ranks) -> None:
    """Trainings whose checkpoints rank 0 cannot write: the error of every rank."""
    errors = []
    for config in (adamw(), adamw(parallel="fsdp"), adamw(parallel="fsdp", stream_checkpoints=True)):
        for tensors in (0, 2):
            try:
                Trainer(small_gpt(), shuffled(), config, FullDisk(tensors), ranks=ranks).fit()
            except UserError as error:
                errors.append(str(error))
    try:
        ranks.from_first(lambda: 1 // 0 if ranks.first else 0)
    except (UserError, ZeroDivisionError) as error:
        errors.append(str(error))
    write_json(folder / f"full.{ranks.rank}.json", errors)


def step_shards(folder: Path, ranks: Ranks) -> None:
    """Three steps of DTensors by PyTorch, and of this rank's shards: how much norms and weights differ."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh, shapes = init_device_mesh("cpu", (ranks.size,)), ((5, 3), (1, 4), (7,))  # the second has no row for rank 1
    differences: dict[str, list[float]] = {}
    for kind in ("adamw", "adam", "sgd"):
        generator = torch.Generator().manual_seed(0)
        values = [torch.randn(shape, generator=generator) for shape in shapes]
        sharded, oracle = (
            nn.ParameterList(distribute_tensor(value.clone(), mesh, [Shard(0)]) for value in values) for _ in range(2)
        )
        config, shards = adamw(optimizer=kind, momentum=0.9, learning_rate=0.1), Shards(sharded)
        ours, theirs = optimizer(sharded, config, ranks, shards), optimizer(oracle, config, ranks)
        clip = GradientClipping([shards.of(each) for each in sharded], 0.5, ranks, shards)  # type: ignore[misc]
        for _ in range(3):
            for shape, mine, other in zip(shapes, sharded, oracle, strict=True):
                gradient = torch.randn(shape, generator=generator)
                mine.grad, other.grad = (distribute_tensor(gradient, mesh, [Shard(0)]) for _ in range(2))
            shards.take_gradients()
            norm, expected = clip(), nn.utils.clip_grad_norm_(oracle.parameters(), 0.5)
            for mine, other in zip(sharded, oracle, strict=True):
                shards.of(mine).grad.copy_(other.grad.to_local())  # type: ignore[union-attr]
            ours.step()
            theirs.step()
            pairs = [*zip(sharded, oracle, strict=True)]
            pairs += [
                (mine, other)
                for mine, other in zip(
                    optimizer_state(ours, sharded, shards).values(),
                    optimizer_state(theirs, oracle).values(),
                    strict=True,
                )
            ]
            apart = [float((full(mine.detach()) - full(other.detach())).abs().max()) for mine, other in pairs]
            differences.setdefault(kind, []).extend([float(norm) - float(full(expected)), max(apart)])
    write_json(folder / f"shards.{ranks.rank}.json", differences)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with joined(torch.device("cpu"), {"version": "0"}) as ranks:
        step_shards(folder, ranks)
        for name, case in CASES.items():
            trainer, store = train(case, ranks, folder)
            if ranks.first:
                save(folder, name, trainer, store)
        evaluate(folder, ranks)
        fill_disks(folder, ranks)
        stopped = Trainer(small_gpt(), shuffled(), adamw(), MemoryStore(), reporter=StopRankOne(), ranks=ranks)
        reason = stopped.fit()
        (folder / f"stopped.{ranks.rank}").write_text(f"{reason} at {stopped.progress.step}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
