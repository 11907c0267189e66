"""Gradient accumulation: the gradients of a batch from micro-batches that fit in memory."""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import Tensor

from seqwright.core.batch import Batch, accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.protocols import Feed
from seqwright.core.ranks import SINGLE, Ranks
from seqwright.core.state import State
from seqwright.training import machine
from seqwright.training.parallel import SingleProcess


def accumulate(
    objective: SingleProcess,
    batch: Batch,
    state: State | None,
    *,
    rows: int,
    scale: Tensor,
    device: torch.device,
    precision: str,
    ranks: Ranks = SINGLE,
) -> tuple[Tensor, State | None]:
    """Accumulates gradients of the batch's loss times `scale` in micro-batches of `rows`; the loss sum and the state
    after, both of this rank's rows.

    `scale` is one over the number of targets of the whole batch, not of a micro-batch: accumulated = one batch.
    """
    afters: list[State] = []
    loss = torch.zeros((), dtype=accumulator_dtype(device), device=device)
    micro_batches = split_rows(batch.rows, rows, ranks)
    mine = ranks.rows(batch.rows)
    for number, (indices, weight) in enumerate(micro_batches, 1):
        # A copy of a whole batch would not be in the page-locked memory that its feed may have put it in.
        micro_batch = (batch if len(indices) == batch.rows else batch.rows_of(indices)).to(device, non_blocking=True)
        before = state
        if state is not None and len(indices) < len(mine):
            at = (indices - mine.start).to(device)
            before = state.select(at, at)
        # Ranks add up their gradients in the last backward pass only.
        with nullcontext() if number == len(micro_batches) else objective.accumulating():
            with machine.autocast(device, precision):
                total, _, after = objective(micro_batch, before)
            total.backward(weight * scale.to(total))  # type: ignore[no-untyped-call]
        loss += weight * total.detach()
        if after is not None and weight:
            afters.append(after.detach())
    return loss, cat_states(afters)


def split_rows(count: int, rows: int, ranks: Ranks) -> list[tuple[Tensor, int]]:
    """This rank's rows of a batch of `count`, in micro-batches of `rows`, each with its weight.

    All ranks have the same number of micro-batches, or one would wait for the others' gradients: a rank with too few
    rows computes the first of them again, with weight 0.
    """
    mine = ranks.rows(count)
    passes = math.ceil(math.ceil(count / ranks.shares) / rows)
    parts = [(part, 1) for part in torch.split(torch.arange(mine.start, mine.stop), rows) if len(part)]
    return parts + [(torch.tensor([mine.start if mine else 0]), 0)] * (passes - len(parts))


def refuse_idle_ranks(feed: Feed, ranks: Ranks) -> None:
    """Raises where ranks would have no row whose state they carry from step to step."""
    if ranks.size > 1 and feed.carried and feed.batch(0).rows < ranks.size:
        raise UserError(
            f'the training text makes {feed.batch(0).rows} rows with carried state (data.examples = "bptt"), fewer'
            f" than {ranks.size} ranks; start fewer processes, or raise training.batch_size."
        )


def cat_states(states: list[State]) -> State | None:
    """The states of consecutive micro-batches concatenated; None without states."""
    return states[0].cat(states[1:]) if states else None


def out_of_memory_error(batch: Batch, rows: int, ranks: Ranks = SINGLE) -> UserError:
    """The error when micro-batches of `rows` rows do not fit, with what to change."""
    automatic = ' or to "auto"' if ranks.size == 1 else ""
    advice = (
        f"Set training.micro_batch_size to {rows // 2}{automatic} (gradients are accumulated to the same result), or"
        if rows > 1
        else "One row alone does not fit:"
    )
    return UserError(
        f"out of memory with {rows} of the batch's {batch.rows} rows at a time, {batch.input.size(1)} tokens each. "
        f'{advice} set training.precision to "bf16", or lower model.context, model.width or model.layers.'
    )
