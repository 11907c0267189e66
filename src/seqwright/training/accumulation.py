"""Gradient accumulation: the gradients of a batch from micro-batches that fit in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from seqwright.core.batch import Batch, accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.state import State
from seqwright.training import machine


def accumulate(
    objective: Callable[[Batch, State | None], tuple[Tensor, Tensor, State | None]],
    batch: Batch,
    state: State | None,
    *,
    rows: int,
    scale: Tensor,
    device: torch.device,
    precision: str,
) -> tuple[Tensor, State | None]:
    """Accumulates gradients of the batch's loss times `scale` in micro-batches of `rows`; the loss sum and the state
    after.

    `scale` is one over the number of targets of the whole batch, not of a micro-batch: accumulated = one batch.
    """
    afters: list[State] = []
    loss = torch.zeros((), dtype=accumulator_dtype(device), device=device)
    for indices in torch.split(torch.arange(batch.rows), rows):
        micro_batch = select_rows(batch, indices).to(device, non_blocking=True)
        before = state
        if state is not None and rows < batch.rows:
            at = indices.to(device)
            before = state.select(at, at)
        with machine.autocast(device, precision):
            total, _, after = objective(micro_batch, before)
        total.backward(scale.to(total))  # type: ignore[no-untyped-call]
        loss += total.detach()
        if after is not None:
            afters.append(after.detach())
    return loss, cat_states(afters)


def select_rows(batch: Batch, rows: Tensor) -> Batch:
    """The batch restricted to these rows."""
    if len(rows) == batch.rows:
        return batch
    documents = None if batch.documents is None else batch.documents[rows]
    source = batch.source.select(rows)
    return replace(batch, source=source, input=batch.input[rows], target=batch.target[rows], documents=documents)


def cat_states(states: list[State]) -> State | None:
    """The states of consecutive micro-batches concatenated; None without states."""
    return states[0].cat(states[1:]) if states else None


def out_of_memory_error(batch: Batch, rows: int) -> UserError:
    """The error when micro-batches of `rows` rows do not fit, with what to change."""
    advice = (
        f'Set training.micro_batch_size to {rows // 2} or to "auto" (gradients are accumulated to the same result), or'
        if rows > 1
        else "One row alone does not fit:"
    )
    return UserError(
        f"out of memory with {rows} of the batch's {batch.rows} rows at a time, {batch.input.size(1)} tokens each. "
        f'{advice} set training.precision to "bf16", or lower model.context, model.width or model.layers.'
    )
