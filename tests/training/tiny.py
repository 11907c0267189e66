"""In-memory feeds and checkpoint store for training tests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.safetensors_chunks import StreamedTensors
from seqwright.training.checkpoint_store import Gather

VOCABULARY = 11


class Same:
    """The same batch at every step: an epoch is one step."""

    steps_per_epoch = 1
    carried = False

    def __init__(self, batch: Batch):
        self.only = batch

    def batch(self, step: int) -> Batch:
        return self.only


class Shuffled:
    """Rows (N, T + 1) in disjoint batches, shuffled by epoch; odd rows are two targets shorter."""

    carried = False

    def __init__(self, ids: Tensor, rows: int):
        self.ids = ids
        self.rows = rows
        self.steps_per_epoch = -(-len(ids) // rows)

    def batch(self, step: int) -> Batch:
        epoch, index = divmod(step, self.steps_per_epoch)
        order = torch.randperm(len(self.ids), generator=torch.Generator().manual_seed(epoch))
        chosen = order[index * self.rows : (index + 1) * self.rows]
        ids = self.ids[chosen]
        target = ids[:, 1:].clone()
        target[chosen % 2 == 1, -2:] = IGNORE
        return Batch.of_text(ids[:, :-1].contiguous(), target)


class Slices:
    """Truncated BPTT over rows (B, N + 1): row b of a batch continues row b of the batch before."""

    carried = True

    def __init__(self, ids: Tensor, window: int):
        self.ids = ids
        self.window = window
        self.steps_per_epoch = (ids.size(1) - 1) // window

    def batch(self, step: int) -> Batch:
        start = step % self.steps_per_epoch * self.window
        ids = self.ids[:, start : start + self.window + 1]
        return Batch.of_text(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def random_ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


@dataclass
class MemoryStore:
    """Checkpoint store in memory."""

    records: list[dict[str, Any]] = field(default_factory=list)
    saved: dict[int, tuple[dict[str, dict[str, Tensor]], dict[str, Any]]] = field(default_factory=dict)

    def log(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        saved = {}
        for name, group in gather().items():
            if isinstance(group, StreamedTensors):  # written while steps wait
                group = {key: group.read(key).clone() for key in group.names}
            saved[name] = group  # written while training continues: later steps must not change it
        self.saved[step] = saved, json.loads(json.dumps(progress))
        for old in [old for old in self.saved if old > step]:
            del self.saved[old]

    def load(self, step: int) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        return self.saved[step]

    def rewind(self, step: int) -> None:
        self.records = [record for record in self.records if record["step"] <= step]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"] == kind]
