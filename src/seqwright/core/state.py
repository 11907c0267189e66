"""What a model carries between decoding steps: a dataclass of tensors, rows first.

So taking rows is written once, and it expands beams, reorders them, copies a prompt to many samples, drops finished
rows and admits new requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor


def per_source() -> Any:
    """Marks a field of a State that holds one entry for each source, however many rows (beams) share that source."""
    return field(metadata={"per_source": True})


def shared() -> Any:
    """Marks a field of a State that holds one value for all rows: a tensor on the CPU, so that reading it waits for no
    device. States that are put together keep the greatest value."""
    return field(metadata={"shared": True})


@dataclass
class State:
    """The state of R rows over B sources, in groups: row r belongs to source r // (R / B).

    A state is used up by `step`, `reorder` and `put`: keep the one that comes back.
    """

    def select(self, rows: Tensor, sources: Tensor | None = None) -> Self:
        """These rows, in this order: expands beams, copies a prompt to samples, drops finished rows.

        Fields marked `per_source` stay as they are while `sources` is None (rows are reordered or repeated within
        their groups); give the surviving sources where some are dropped or reordered.
        """
        taken: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            index = sources if f.metadata.get("per_source") else rows
            if isinstance(value, State):
                taken[f.name] = value.select(rows, sources)
            elif index is not None and not f.metadata.get("shared"):
                taken[f.name] = value.index_select(0, index)
        return replace(self, **taken)

    def reorder(self, rows: Tensor) -> Self:
        """`select` within groups with as many rows as before; may work in place."""
        moved: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, State):
                moved[f.name] = value.reorder(rows)
            elif not f.metadata.get("per_source") and not f.metadata.get("shared"):
                moved[f.name] = value.index_select(0, rows)
        return replace(self, **moved)

    def cat(self, others: Sequence[Self]) -> Self:
        """The rows of this state, then those of the others: admits requests."""
        states = self.aligned([self, *others])
        joined: dict[str, Any] = {}
        for f in fields(self):
            first, *rest = (getattr(state, f.name) for state in states)
            if isinstance(first, State):
                joined[f.name] = first.cat(rest)
            elif f.metadata.get("shared"):
                joined[f.name] = torch.stack([first, *rest]).amax(0)
            else:
                joined[f.name] = torch.cat([first, *rest])
        return replace(states[0], **joined)

    def put(self, rows: Tensor, other: Self) -> Self:
        """The rows of `other` in place of these rows: admits requests to free slots without copying the others. Both
        states have one row for each source."""
        mine, theirs = self.aligned([self, other])
        for f in fields(mine):
            value, new = getattr(mine, f.name), getattr(theirs, f.name)
            if isinstance(value, State):
                setattr(mine, f.name, value.put(rows, new))
            elif f.metadata.get("shared"):
                setattr(mine, f.name, torch.maximum(value, new))
            else:
                value.index_copy_(0, rows, new)
        return mine

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """The same states with equal sizes along every axis but the first: shorter ones are padded."""
        return list(states)

    def static(self, steps: int) -> Self | None:
        """This state in shapes that `steps` steps of one id leave as they are, reading nothing from the device: what it
        takes to capture a step in a CUDA graph; the state itself where it has them already. Recurrent states are so by
        nature; None where a model's are not."""
        nested = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), State)}
        held: dict[str, Any] = {name: value.static(steps) for name, value in nested.items()}
        if None in held.values():
            return None
        return self if all(held[name] is value for name, value in nested.items()) else replace(self, **held)

    def count_steps(self, steps: int) -> None:
        """Updates what the host knows of a static state, of which a CUDA graph has replayed `steps` steps."""
        for f in fields(self):
            if isinstance(value := getattr(self, f.name), State):
                value.count_steps(steps)

    def captured_as(self) -> tuple[int, ...]:
        """Numbers of the host that a captured step of a static state depends on, besides shapes."""
        nested = (value for f in fields(self) if isinstance(value := getattr(self, f.name), State))
        return tuple(number for value in nested for number in value.captured_as())

    def copy_(self, other: Self) -> Self:
        """This state with the values of `other`, every tensor where it was."""
        for (_, mine), (_, theirs) in zip(self.named_tensors(), other.named_tensors(), strict=True):
            if mine is not theirs:
                mine.copy_(theirs)
        return self

    def copied(self) -> Self:
        """The same values in tensors of their own, with dense strides."""
        return self.from_tensors({name: tensor.detach().contiguous().clone() for name, tensor in self.named_tensors()})

    def detach(self) -> Self:
        """The same values without their graph: what truncated back-propagation carries to the next window."""
        return replace(self, **{f.name: getattr(self, f.name).detach() for f in fields(self)})

    def named_tensors(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Every tensor with its dotted name: what a checkpoint writes."""
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, State):
                yield from value.named_tensors(f"{prefix}{f.name}.")
            else:
                yield prefix + f.name, value

    def from_tensors(self, tensors: Mapping[str, Tensor], prefix: str = "") -> Self:
        """A state of this structure with these tensors: what a checkpoint reads."""
        loaded: dict[str, Any] = {}
        for f in fields(self):
            mine = getattr(self, f.name)
            if isinstance(mine, State):
                loaded[f.name] = mine.from_tensors(tensors, f"{prefix}{f.name}.")
            else:
                loaded[f.name] = tensors[prefix + f.name].to(mine.device)
        return replace(self, **loaded)


@runtime_checkable
class Rewindable(Protocol):
    """A state that can forget its last tokens: cached attention. States of fixed size (recurrent networks, n-grams) do
    not hold what came before: keep snapshots of them instead, which cost no more than the state itself."""

    def truncate(self, lengths: Tensor) -> Self:
        """Each row as it was after `lengths` (R,) tokens, at most as many as it has."""
        ...
