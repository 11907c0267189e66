"""Attention over the source, recorded by forward hooks: alignments, coverage, and states that carry the weights.

Models compute attention without keeping it. Those with cross-attention name the modules that compute it
(`AttendsSource`); a hook gets what each was called with, and its `weights` recomputes the softmax. Without a hook
nothing is paid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import AttendsSource, Autoregressive
from seqwright.core.state import State
from seqwright.layers.recording import attention_weights, recorded_calls


@dataclass
class AttendedState(State):
    """A model's state, and the attention weights of its last step."""

    state: State
    weights: Tensor  # (R, S)

    @classmethod
    def aligned(cls, states: Sequence[AttendedState]) -> list[AttendedState]:
        width = max(one.weights.size(1) for one in states)
        pads = [width - one.weights.size(1) for one in states]
        return [cls(one.state, nn.functional.pad(one.weights, (0, pad))) for one, pad in zip(states, pads, strict=True)]


class RecordingModel:
    """A model with cross-attention whose state carries the attention weights of each step; its numbers are the same."""

    def __init__(self, model: Any):
        if not attends_source(model):
            raise UserError("this model has no attention over its source; set coverage_penalty = 0.")
        self.model = model

    @property
    def context(self) -> int | None:
        return self.model.context

    def eval(self) -> RecordingModel:
        self.model.eval()
        return self

    def start(self, source: Source, *, capacity: int) -> AttendedState:
        state = self.model.start(source, capacity=capacity)
        return AttendedState(state, torch.zeros(source.mask.shape, device=source.device))

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, AttendedState]:
        assert isinstance(state, AttendedState)
        with record(self.model) as attention:
            log_probs, after = self.model.step(ids, state.state, count, all_positions=all_positions)
        weights = mean(attention, len(ids))  # (R, T, S)
        last = torch.full((len(ids),), weights.size(1), device=ids.device) if count is None else count
        return log_probs, AttendedState(after, weights[torch.arange(len(ids), device=ids.device), last - 1])

    def __call__(self, batch: Batch) -> Tensor:
        return self.model(batch)

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.model.score(batch, state)


def attends_source(model: Autoregressive) -> bool:
    """Whether a model has attention over its source; a bottleneck has none."""
    return isinstance(model, AttendsSource) and bool(model.source_attention)


@contextmanager
def record(model: AttendsSource) -> Iterator[list[list[Tensor]]]:
    """Records the weights of every source attention while entered: for each module its calls, (B, H, N, S) or
    (B, N, S)."""
    with recorded_calls(model.source_attention, attention_weights) as calls:
        yield calls


def mean(calls: Sequence[Sequence[Tensor]], rows: int) -> Tensor:
    """(R, T, S): the mean over heads and layers, of which none is the alignment by itself. Beams come folded into the
    query axis."""
    layers = [
        torch.cat([(call.mean(1) if call.dim() == 4 else call).reshape(rows, -1, call.size(-1)) for call in own], 1)
        for own in calls
    ]
    return torch.stack(layers).mean(0)


@torch.inference_mode()
def alignments(model: Any, source: Source, outputs: Sequence[Sequence[int]], *, sos: int, eos: int) -> list[Tensor]:
    """For each source, (T + 1, S): the attention weights with which each id of the output, and <eos>, was predicted.

    From one pass of teacher forcing, which equals the steps of the search.
    """
    longest = max(map(len, outputs)) + 1
    input = torch.tensor([[sos, *ids, *[eos] * (longest - len(ids) - 1)] for ids in outputs], device=source.device)
    with record(model) as attention:
        model.score(Batch(source=source, input=input, target=torch.full_like(input, IGNORE)))
    weights, sizes = mean(attention, len(outputs)), source.mask.sum(1).tolist()
    return [own[: len(ids) + 1, :size] for own, ids, size in zip(weights, outputs, sizes, strict=True)]


def coverage(weights: Tensor) -> float:
    """The share of a source that was attended to, from weights (T, S): each position counts for at most one."""
    return float(weights.sum(0).clamp(max=1).mean())
