"""Ranks: the processes of one data-parallel training, their rows of a batch, and what they agree on (decision 173)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from seqwright.core.config import UserError

T = TypeVar("T")

TensorGroups = dict[str, dict[str, Tensor]]
"""Tensors of a checkpoint by group: model, optimizer, ema, carry."""
TensorShape = tuple[str, list[int]]
"""dtype and shape of a tensor."""


@dataclass(frozen=True)
class Ranks:
    """This process among those of a training; by default the only one, for which every method is free.

    Collectives: all ranks call them, in the same order. Values that ranks decide by (losses, scores, stop signals) are
    made equal by them, so that every rank takes the same branch.
    """

    rank: int = 0
    size: int = 1
    tensor: int = 1
    """Ranks, one after another, that compute the same rows, each a part of the model (training.tensor_parallel)."""

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which evaluates, logs, saves and reports."""
        return self.rank == 0

    @property
    def shares(self) -> int:
        """Shares of a batch: all ranks, or groups of them."""
        return self.size // self.tensor

    @property
    def share(self) -> int:
        """Which of them is this rank's."""
        return self.rank // self.tensor

    def rows(self, count: int) -> range:
        """This rank's rows of a global batch of `count` rows: contiguous, and equally many up to one."""
        return range(count * self.share // self.shares, count * (self.share + 1) // self.shares)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def max(self, number: int) -> int:
        """The greatest number of any rank."""
        if self.size == 1:
            return number
        tensor = torch.tensor(number)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def cat(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, on every rank; each may have another number of them."""
        if self.size == 1:
            return rows
        counts = self.sum(torch.eye(self.size, dtype=torch.long)[self.rank] * len(rows)).tolist()
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])

    def gather(self, value: T) -> list[T]:
        """The values of all ranks in their order, on every rank; values that JSON can hold."""
        if self.size == 1:
            return [value]
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.cat(torch.tensor([len(text)])).tolist()
        return [json.loads(part.numpy().tobytes()) for part in torch.split(self.cat(text), lengths)]

    def from_first(self, compute: Callable[[], T]) -> T:
        """What rank 0 computes, on every rank; a value that JSON can hold (nothing is pickled).

        An error of rank 0 is one of all ranks: none waits for a rank that has ended.
        """
        if self.size == 1:
            return compute()
        value, problem = None, None
        try:
            value = compute() if self.first else None
        except Exception as error:
            problem = error
        message = None if problem is None else str(problem) or type(problem).__name__
        text = json.dumps([value, message], default=dict).encode() if self.first else b""
        length = self.max(len(text))
        buffer = torch.frombuffer(bytearray(text or length), dtype=torch.uint8)
        dist.broadcast(buffer, 0)
        if problem is not None:
            raise problem
        if self.first:
            return value  # type: ignore[return-value]
        sent, message = json.loads(buffer.numpy().tobytes())
        if message is not None:
            raise UserError(message)
        return sent

    def shapes_from_first(self, groups: TensorGroups | None) -> dict[str, dict[str, TensorShape]]:
        """dtype and shape of every tensor of rank 0, on every rank; other ranks pass None."""
        return self.from_first(lambda: _shapes(groups or {}))

    def tensor_from_first(self, tensor: Tensor | None, dtype: str, shape: Sequence[int]) -> Tensor:
        """A tensor of rank 0, on the CPU of every rank; other ranks pass None."""
        received = torch.empty(list(shape), dtype=getattr(torch, dtype)) if tensor is None else tensor
        if self.size > 1:
            received = received.contiguous()
            dist.broadcast(received, 0)
        return received

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Gives these tensors, which all ranks hold in equal shapes, the values of rank 0."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), 0)

    def barrier(self) -> None:
        """Waits for all ranks."""
        self.max(0)


SINGLE = Ranks()
"""The only process of a training."""

_evaluating: ContextVar[Ranks] = ContextVar("ranks of an evaluation", default=SINGLE)


@contextmanager
def evaluation_by(ranks: Ranks) -> Iterator[None]:
    """Context manager under which an evaluation, which all of these ranks compute, is shared by them."""
    token = _evaluating.set(ranks)
    try:
        yield
    finally:
        _evaluating.reset(token)


def evaluation_ranks() -> Ranks:
    """The ranks that share the evaluation that is running; one outside of training."""
    return _evaluating.get()


def _shapes(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, TensorShape]]:
    """dtype and shape of each tensor, as JSON holds them."""
    return {
        group: {name: (str(tensor.dtype).removeprefix("torch."), list(tensor.shape)) for name, tensor in named.items()}
        for group, named in groups.items()
    }
