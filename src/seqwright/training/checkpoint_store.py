"""Where a trainer's checkpoints and log records go, on one process and on several ranks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from torch import Tensor

from seqwright.core.ranks import Ranks, TensorGroups
from seqwright.core.safetensors_chunks import StreamedTensors

SavedGroups = dict[str, dict[str, Tensor] | StreamedTensors]
"""Tensors of a checkpoint by group, some of which are gathered while they are written."""
Gather = Callable[[], SavedGroups]
"""Copies the tensors of a checkpoint to the host when a store has room for them. A collective: complete on rank 0."""


class CheckpointStore(Protocol):
    """Where checkpoints and log records are written: a run directory, or memory in tests."""

    def log(self, record: dict[str, Any]) -> None:
        """Appends a record to the log."""

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        """Saves a checkpoint; of the older ones, those of the steps in `kept` must stay."""

    def load(self, step: int) -> tuple[TensorGroups | None, dict[str, Any]]:
        """Loads a checkpoint that was kept; of several ranks, rank 0 has its tensors."""
        ...

    def rewind(self, step: int) -> None:
        """Removes the log records after a step."""


class BackgroundStore:
    """A store whose checkpoints are written by a thread while training continues, one at a time (decision 182).

    A checkpoint appears when it is complete: a process that is killed meanwhile resumes from the one before.
    """

    def __init__(self, store: CheckpointStore):
        self.store = store
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def log(self, record: dict[str, Any]) -> None:
        self.store.log(record)

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        """Saves a checkpoint after the one before, whose memory is free by then; raises the error of that one."""
        self.wait()
        groups = gather()
        if any(isinstance(tensors, StreamedTensors) for tensors in groups.values()):
            self.store.save(step, lambda: groups, progress, kept)  # gathers, as all ranks do at this point
            return
        self.pending = self.pool.submit(self.store.save, step, lambda: groups, progress, kept)

    def load(self, step: int) -> tuple[TensorGroups | None, dict[str, Any]]:
        self.wait()
        return self.store.load(step)

    def rewind(self, step: int) -> None:
        self.wait()
        self.store.rewind(step)

    def wait(self) -> float:
        """Waits until the last checkpoint is written; the seconds that this took.

        An interrupt of the wait does not end the writer: wait again before its folder is removed. Its error is raised,
        or added as a note where another one ends the training.
        """
        start = time.perf_counter()
        if self.pending is not None:
            wait([self.pending])
            pending, self.pending = self.pending, None
            problem, other = pending.exception(), sys.exception()
            if problem is not None and other is None:
                raise problem
            if problem is not None and other is not None:
                other.add_note(f"besides, the last checkpoint was not written: {problem}")
        return time.perf_counter() - start


class Gathering:
    """The collectives of a checkpoint, all of which every rank takes part in, also one whose disk is full."""

    def __init__(self, gather: Gather):
        self.gather = gather
        self.groups: SavedGroups | None = None
        self.due: list[tuple[StreamedTensors, str]] = []
        """Tensors that are not gathered yet, in the order in which they are written."""

    def __call__(self) -> SavedGroups:
        self.groups = {}
        for group, tensors in self.gather().items():
            if isinstance(tensors, StreamedTensors):
                self.due += [(tensors, name) for name in tensors.names]
                tensors = StreamedTensors(tensors.like, self._next)
            self.groups[group] = tensors
        return self.groups

    def complete(self) -> None:
        """Gathers what was not gathered."""
        if self.groups is None:
            self()
        while self.due:
            self._next(self.due[0][1])

    def _next(self, name: str) -> Tensor:
        tensors, due = self.due.pop(0)
        assert due == name, f"{name} is written before {due}"
        return tensors.read(name)


def _raise(problem: Exception | None) -> None:
    if problem is not None:
        raise problem


class RankStore:
    """The store of rank 0 as every rank uses it: the others write nothing, and receive what rank 0 loads."""

    def __init__(self, store: CheckpointStore, ranks: Ranks):
        self.store, self.ranks = store, ranks

    def log(self, record: dict[str, Any]) -> None:
        if self.ranks.first:
            self.store.log(record)

    def save(self, step: int, gather: Gather, progress: dict[str, Any], kept: list[int]) -> None:
        """Saves a checkpoint; where rank 0 cannot write it, every rank raises its error."""
        gathering, problem = Gathering(gather), None
        if self.ranks.first:
            try:
                self.store.save(step, gathering, progress, kept)
            except Exception as error:  # whatever it is, the others wait in a collective
                problem = error
        gathering.complete()
        self.ranks.from_first(lambda: _raise(problem))

    def load(self, step: int) -> tuple[TensorGroups | None, dict[str, Any]]:
        groups: TensorGroups | None = None

        def read() -> dict[str, Any]:
            nonlocal groups
            groups, progress = self.store.load(step)
            return progress

        progress = self.ranks.from_first(read)
        return groups, progress

    def rewind(self, step: int) -> None:
        if self.ranks.first:
            self.store.rewind(step)
