"""The gradients of a whole batch, from parts that fit in memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.core.protocols import State
from seqwright.training import machine
from seqwright.training.objective import Objective
from seqwright.training.trainer_state import wide


def accumulate(
    objective: Objective, batch: Batch, state: State | None, *, rows: int, device: torch.device, precision: str
) -> tuple[Tensor, State | None]:
    """Adds up the gradients of the batch's mean loss, `rows` at a time; the loss sum, and the state after."""
    count = batch.count
    afters: list[State] = []
    loss = torch.zeros((), dtype=wide(device), device=device)
    for some in torch.split(torch.arange(batch.rows), rows):
        part = take(batch, some).to(device, non_blocking=True)
        before = None if state is None else state.select(some.to(device), some.to(device))
        with machine.autocast(device, precision):
            total, _, after = objective(part, before)
        (total / max(count, 1)).backward()
        loss += total.detach()
        if after is not None:
            afters.append(after.detach())
    return loss, joined(afters)


def take(batch: Batch, rows: Tensor) -> Batch:
    """These rows of a batch."""
    if len(rows) == batch.rows:
        return batch
    documents = None if batch.documents is None else batch.documents[rows]
    source = batch.source.select(rows)
    return replace(batch, source=source, input=batch.input[rows], target=batch.target[rows], documents=documents)


def joined(states: list[State]) -> State | None:
    """The states of consecutive micro-batches as one."""
    whole = states[0] if states else None
    for state in states[1:]:
        assert whole is not None
        whole = whole.cat(state)
    return whole


def out_of_memory(batch: Batch, rows: int) -> UserError:
    """What to change when `rows` rows of a batch do not fit."""
    sooner = (
        f'Set training.micro_batch_size to {rows // 2} or to "auto" (the result is that of the whole batch), or'
        if rows > 1
        else "One row alone does not fit:"
    )
    return UserError(
        f"out of memory with {rows} of the batch's {batch.rows} rows at a time, {batch.input.size(1)} tokens each. "
        f'{sooner} set training.precision to "bf16", or lower model.context, model.width or model.layers.'
    )
