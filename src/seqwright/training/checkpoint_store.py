"""Where a trainer's checkpoints and log records go, on one process and on several ranks."""

from __future__ import annotations

from typing import Any, Protocol

from seqwright.core.ranks import Ranks, TensorGroups


class CheckpointStore(Protocol):
    """Where checkpoints and log records are written: a run directory, or memory in tests."""

    def log(self, record: dict[str, Any]) -> None:
        """Appends a record to the log."""

    def save(self, step: int, groups: TensorGroups, progress: dict[str, Any], kept: list[int]) -> None:
        """Saves a checkpoint; of the older ones, those of the steps in `kept` must stay."""

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        """Loads a checkpoint that was kept."""
        ...

    def rewind(self, step: int) -> None:
        """Removes the log records after a step."""


class RankStore:
    """The store of rank 0 as every rank uses it: the others write nothing, and receive what rank 0 loads."""

    def __init__(self, store: CheckpointStore, ranks: Ranks):
        self.store, self.ranks = store, ranks

    def log(self, record: dict[str, Any]) -> None:
        if self.ranks.first:
            self.store.log(record)

    def save(self, step: int, groups: TensorGroups, progress: dict[str, Any], kept: list[int]) -> None:
        if self.ranks.first:
            self.store.save(step, groups, progress, kept)

    def load(self, step: int) -> tuple[TensorGroups, dict[str, Any]]:
        groups, progress = self.store.load(step) if self.ranks.first else (None, {})
        return self.ranks.tensors_from_first(groups), self.ranks.from_first(lambda: progress)

    def rewind(self, step: int) -> None:
        if self.ranks.first:
            self.store.rewind(step)
