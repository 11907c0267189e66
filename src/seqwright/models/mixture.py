"""Mixtures: several models answer, and their probabilities are averaged.

Whatever is behind the seam can be mixed, an n-gram with an LSTM too, as long as the vocabulary is one. The weights are
those under which held-out text is most probable (`metrics/interpolation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    weights: tuple[float, ...]
    """How much each part counts."""
    mean: Literal["arithmetic", "geometric"] = "arithmetic"
    """arithmetic: Σ weight p, weights adding up to one; geometric: ∝ Π p^weight, in which every part has a veto."""
    parts: Any
    """The [model] tables of the parts, as [model.parts.1], [model.parts.2], …."""

    def __post_init__(self) -> None:
        if not isinstance(self.parts, dict) or not all(isinstance(part, dict) for part in self.parts.values()):
            raise UserError("parts are tables, as in [model.parts.1]; `seqwright mix RUN RUN --on FILE` writes them.")


@dataclass
class Both(State):
    """The states of two models; of more than two, the second is itself a Both."""

    first: State
    rest: State


class Parts:
    """Several models, kept, opened and moved as one."""

    models: list[Any]

    def state_dict(self) -> dict[str, Tensor]:
        """All that the parts know; names are `1.embedding.weight`, …."""
        return {
            f"{n}.{name}": tensor for n, model in enumerate(self.models, 1) for name, tensor in _known(model).items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Becomes the mixture these tensors came from."""
        for n, model in enumerate(self.models, 1):
            own = {name.removeprefix(f"{n}."): t for name, t in tensors.items() if name.startswith(f"{n}.")}
            if isinstance(model, torch.nn.Module):
                unknown = model.load_state_dict(own, strict=False).unexpected_keys  # tied ones go by their first name
                assert not unknown, f"part {n} has no {unknown}"
                assert own.keys() >= _known(model).keys(), f"part {n} lacks some of its weights"
                model.eval()
            else:
                model.load_state_dict(own)

    def to(self, target: torch.device | str | torch.dtype) -> Self:
        """Moves the neural parts, or holds them in another type; counted ones stay as they are, on the CPU."""
        for model in self.models:
            if hasattr(model, "to"):
                model.to(target)
        return self


class Mixture(Parts):
    """p(w | h) = Σ weight_i p_i(w | h)."""

    needs = "the weights of a mixture add up to one"

    def __init__(self, models: Sequence[Autoregressive], weights: Sequence[float] | Tensor):
        self.models = list(models)
        self.weights = torch.as_tensor(weights, dtype=torch.float64)
        if not self.models or len(self.models) != len(self.weights):
            raise UserError(f"a mixture needs models and a weight for each, not {len(self.weights)} weights.")
        if (self.weights < 0).any() or not self._balanced():
            raise UserError(f"{self.needs}; none is negative, unlike {self.weights.tolist()}.")
        sights = [model.context for model in self.models if model.context is not None]
        self.context = min(sights, default=None)

    @property
    def source_attention(self) -> list[torch.nn.Module]:
        """Where it can be heard what the parts attend to in the source: each of their modules counts alike."""
        return [module for model in self.models for module in getattr(model, "source_attention", ())]

    def start(self, source: Source, *, capacity: int) -> State:
        return _join([model.start(source, capacity=capacity) for model in self.models])

    def step(self, ids: Tensor, state: State, count: Tensor | None = None) -> tuple[Tensor, State]:
        answers = [
            model.step(ids, own, count) for model, own in zip(self.models, _split(state, len(self.models)), strict=True)
        ]
        return self._mix([log_probs for log_probs, _ in answers]), _join([after for _, after in answers])

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        states = [None] * len(self.models) if state is None else _split(state, len(self.models))
        answers = [model.score(batch, own) for model, own in zip(self.models, states, strict=True)]
        mixed = self._mix([scores for scores, _ in answers])
        after = [own for _, own in answers if own is not None]
        return mixed.masked_fill(batch.target == IGNORE, 0), _join(after) if after else None

    def __call__(self, batch: Batch) -> Tensor:
        return self._mix([model(batch).log_softmax(-1) for model in self.models])

    def _balanced(self) -> bool:
        return bool(torch.isclose(self.weights.sum(), torch.ones(()).double()))

    def _mix(self, log_probs: list[Tensor]) -> Tensor:
        """log Σ weight_i p_i; models may lie on several devices, the first says where the answer goes."""
        device = log_probs[0].device
        stacked = torch.stack([p.to(device) for p in log_probs], -1)
        return torch.logsumexp(stacked + self.weights.log().to(stacked), -1)


class Product(Mixture):
    """p(w | h) ∝ Π p_i(w | h)^weight_i: the geometric mean, in which every model has a veto (Hinton 2002).

    What the weights add up to says how sure it is: 1 is no surer than its parts. What a token's probability is depends
    on all the others, so `score` goes step by step.
    """

    needs = "the weights of a product are not all zero"

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        after = self.start(batch.source, capacity=batch.input.size(1)) if state is None else state
        said = []
        for t in range(batch.input.size(1)):
            log_probs, after = self.step(batch.input[:, t : t + 1], after)
            said.append(log_probs.gather(-1, batch.target[:, t : t + 1].clamp(min=0)))
        scores = torch.cat(said, 1).masked_fill(batch.target == IGNORE, 0)
        return scores, None if state is None else after

    def _balanced(self) -> bool:
        return bool(self.weights.any())

    def _mix(self, log_probs: list[Tensor]) -> Tensor:
        device = log_probs[0].device
        weighed = [float(weight) * p.to(device) for weight, p in zip(self.weights, log_probs, strict=True) if weight]
        # Where the models agree on no token at all, none has any mass.
        return torch.stack(weighed).sum(0).log_softmax(-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)


def _known(model: Any) -> dict[str, Tensor]:
    if not isinstance(model, torch.nn.Module):
        return dict(model.state_dict())
    named = model.state_dict(keep_vars=True)
    first = {id(tensor): name for name, tensor in reversed(named.items())}
    return {name: tensor.detach() for name, tensor in named.items() if first[id(tensor)] == name}


def _join(states: list[State]) -> State:
    first, *rest = states
    return Both(first, _join(rest)) if rest else first


def _split(state: State, many: int) -> list[State]:
    if many == 1:
        return [state]
    assert isinstance(state, Both)
    return [state.first, *_split(state.rest, many - 1)]
