"""Where outputs looked: how much each step of a model attended to every source position.

Models compute attention without keeping it. Those that can tell name modules that attend to it (`source_attention`);
forward hooks then hear what each was called with, and its `weights` say the rest. Who does not ask pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State


@dataclass
class Attended(State):
    """A model's state, and how its last step attended."""

    own: State
    weights: Tensor  # (R, S)

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """Sources padded to the longest."""
        length = max(state.weights.size(1) for state in states)
        return [cls(one.own, nn.functional.pad(one.weights, (0, length - one.weights.size(1)))) for one in states]


class Attending:
    """A model that attends, with a state that says where: the same answers, step by step."""

    def __init__(self, model: Any):
        if not attentive(model):
            raise UserError("this model does not say what it attends to; set coverage = 0, and ask for no attention.")
        self.model = model

    @property
    def context(self) -> int | None:
        return self.model.context

    def start(self, source: Source, *, capacity: int) -> Attended:
        own = self.model.start(source, capacity=capacity)
        return Attended(own, torch.zeros(source.mask.shape, device=source.device))

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, Attended]:
        assert isinstance(state, Attended)
        with heard(self.model) as attention:
            log_probs, own = self.model.step(ids, state.own, count)
        weights = mean(attention, len(ids))  # (R, T, S)
        last = torch.full((len(ids),), weights.size(1), device=ids.device) if count is None else count
        return log_probs, Attended(own, weights[torch.arange(len(ids), device=ids.device), last - 1])

    def __call__(self, batch: Batch) -> Tensor:
        return self.model(batch)

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.model.score(batch, state)


def attentive(model: Autoregressive) -> bool:
    """Whether a model can say what it attends to in its source."""
    return bool(getattr(model, "source_attention", ()))


@contextmanager
def heard(model: Any) -> Iterator[list[list[Tensor]]]:
    """What each module that asks the source attended to meanwhile: a list of its calls, (B, H, N, S) or (B, N, S)."""
    calls: list[list[Tensor]] = [[] for _ in model.source_attention]

    def listen(own: list[Tensor]) -> Any:
        def hook(module: Any, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
            own.append(module.weights(*args[:2], **kwargs))

        return hook

    handles = [
        module.register_forward_pre_hook(listen(own), with_kwargs=True)
        for module, own in zip(model.source_attention, calls, strict=True)
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def mean(calls: Sequence[Sequence[Tensor]], rows: int) -> Tensor:
    """(R, T, S): over heads and layers, of which none is the alignment by itself. Beams come folded into queries."""
    layers = [
        torch.cat([(call.mean(1) if call.dim() == 4 else call).reshape(rows, -1, call.size(-1)) for call in own], 1)
        for own in calls
    ]
    return torch.stack(layers).mean(0)


@torch.inference_mode()
def alignments(model: Any, source: Source, outputs: Sequence[Sequence[int]], *, sos: int, eos: int) -> list[Tensor]:
    """For each source, (T + 1, S): where the model looked before it said each id of the output, and its end.

    Read off one pass of teacher forcing, which equals the steps of the search.
    """
    longest = max(map(len, outputs)) + 1
    input = torch.tensor([[sos, *ids, *[eos] * (longest - len(ids) - 1)] for ids in outputs], device=source.device)
    with heard(model) as attention:
        model.score(Batch(source=source, input=input, target=torch.full_like(input, IGNORE)))
    weights, sizes = mean(attention, len(outputs)), source.mask.sum(1).tolist()
    return [own[: len(ids) + 1, :size] for own, ids, size in zip(weights, outputs, sizes, strict=True)]


def coverage(weights: Tensor) -> float:
    """The share of a source that an output (T, S) attended to: each position counts for one at most."""
    return float(weights.sum(0).clamp(max=1).mean())
