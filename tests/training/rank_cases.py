"""Trainings that a rank takes part in: `python -m tests.training.rank_cases FOLDER`, once for each rank."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from seqwright.core.protocols import Feed
from seqwright.core.ranks import Ranks
from seqwright.core.storage import save_tensors, write_json
from seqwright.training.config import TrainingConfig
from seqwright.training.process_group import joined
from seqwright.training.trainer import Trainer

from .test_trainer import fresh, gpt, lstm, options, shuffled, slices
from .tiny import MemoryStore


@dataclass(frozen=True)
class Case:
    """A training; its batches have 5, 5 and 4 rows, or 5 with carried state."""

    model: Callable[[], nn.Module]
    feed: Callable[[], Feed]
    config: TrainingConfig


def double(config: object) -> nn.Module:
    return fresh(config).double()


CASES = {
    "ddp": Case(lambda: double(gpt()), shuffled, options(steps=7)),
    "fsdp": Case(lambda: double(gpt()), shuffled, options(steps=7, parallel="fsdp")),
    "ddp-micro": Case(lambda: double(gpt()), shuffled, options(steps=7, micro_batch_size=2, ema_decay=0.9)),
    "fsdp-micro": Case(
        lambda: double(gpt()), shuffled, options(steps=7, micro_batch_size=2, ema_decay=0.9, parallel="fsdp")
    ),
    "ddp-carried": Case(lambda: double(lstm()), slices, options(steps=7, micro_batch_size=1)),
}


def train(case: Case, ranks: Ranks) -> MemoryStore:
    store = MemoryStore()
    trainer = Trainer(case.model(), case.feed(), case.config, store, ranks=ranks)
    assert trainer.fit() is None
    return store


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with joined(torch.device("cpu"), {"version": "0"}) as ranks:
        for name, case in CASES.items():
            store = train(case, ranks)
            if ranks.first:
                groups, progress = store.saved[case.config.steps or 0]
                for group, tensors in groups.items():
                    save_tensors(folder / f"{name}.{group}.safetensors", tensors)
                write_json(folder / f"{name}.json", {"log": store.of_kind("train"), "progress": progress})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
