"""Mixtures: weighted means of the next-token distributions of several models.

Any autoregressive models of one vocabulary can be mixed, an n-gram with an LSTM too. The weights are those under which
held-out text is most probable (`metrics/interpolation.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import AttendsSource, Autoregressive, Counted
from seqwright.core.state import State

POSITIONS = 1024
"""Positions whose whole distributions a product computes at a time."""
TOLERANCE = 1e-5
"""Rounding of weights that sum to one."""


@dataclass(frozen=True, kw_only=True)
class MixtureConfig:
    weights: tuple[float, ...]
    """Weight of each part."""
    mean: Literal["arithmetic", "geometric"] = "arithmetic"
    """arithmetic: Σ weight p, with weights that sum to one; geometric: ∝ Π p^weight, in which every part has a veto."""
    interpolation: tuple[float, ...] = ()
    """Of a geometric mean that is interpolated with its parts, the weight of each part; the mean has the rest. None by
    default."""
    parts: Any
    """[model] tables of the parts, as [model.parts.1], [model.parts.2], …."""

    def __post_init__(self) -> None:
        if not isinstance(self.parts, dict) or not all(isinstance(part, dict) for part in self.parts.values()):
            raise UserError("parts are tables, as in [model.parts.1]; `seqwright mix RUN RUN --on FILE` writes them.")
        if self.interpolation and self.mean != "geometric":
            raise UserError("interpolation is that of a geometric mean with its parts: leave it out.")


@dataclass
class MixtureState(State):
    """The states of two models; for more than two, `rest` is itself a MixtureState."""

    first: State
    rest: State


class Parts:
    """Several models, saved, loaded and moved as one."""

    models: list[Any]

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors of all parts; names are `1.embedding.weight`, …."""
        return {
            f"{n}.{name}": tensor for n, model in enumerate(self.models, 1) for name, tensor in _tensors(model).items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Loads the tensors that `state_dict` returned."""
        for n, model in enumerate(self.models, 1):
            part = {name.removeprefix(f"{n}."): t for name, t in tensors.items() if name.startswith(f"{n}.")}
            if isinstance(model, (Counted, Parts)):
                model.load_state_dict(part)
                continue
            unknown = model.load_state_dict(part, strict=False).unexpected_keys  # tied weights have one name
            assert not unknown, f"part {n} has no {unknown}"
            assert part.keys() >= _tensors(model).keys(), f"part {n} lacks some of its weights"
            model.eval()

    def eval(self) -> Self:
        for model in self.models:
            model.eval()
        return self

    def to(self, target: torch.device | str | torch.dtype) -> Self:
        """Moves the networks to a device or dtype; counted models stay on the CPU."""
        for model in self.models:
            model.to(target)
        return self


class Mixture(Parts):
    """p(w | h) = Σ weight_i p_i(w | h)."""

    rule = "the weights of a mixture sum to one"

    def __init__(self, models: Sequence[Autoregressive], weights: Sequence[float] | Tensor):
        self.models = list(models)
        weights = [float(weight) for weight in weights]
        if not self.models or len(self.models) != len(weights):
            raise UserError(f"a mixture needs models and a weight for each, not {len(weights)} weights.")
        if not all(weight >= 0 for weight in weights) or not self._valid(weights):
            raise UserError(f"{self.rule}; none is negative, unlike {weights}.")
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.context = min((model.context for model in self.models if model.context is not None), default=None)

    @property
    def source_attention(self) -> list[torch.nn.Module]:
        """The modules of all parts that attend to the source, each with the same weight."""
        attentive = [model for model in self.models if isinstance(model, AttendsSource)]
        return [module for model in attentive for module in model.source_attention]

    def start(self, source: Source, *, capacity: int) -> State:
        """The initial decoding states of all parts."""
        return _join([model.start(source, capacity=capacity) for model in self.models])

    def step(
        self, ids: Tensor, state: State, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, State]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        states = _split(state, len(self.models))
        steps = [
            model.step(ids, part, count, all_positions=all_positions)
            for model, part in zip(self.models, states, strict=True)
        ]
        return self._mix([log_probs for log_probs, _ in steps]), _join([after for _, after in steps])

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T), and the state after where one was passed."""
        states = [None] * len(self.models) if state is None else _split(state, len(self.models))
        scores = [model.score(batch, part) for model, part in zip(self.models, states, strict=True)]
        mixed = self._mix([log_probs for log_probs, _ in scores])
        after = [part for _, part in scores if part is not None]
        return mixed.masked_fill(batch.target == IGNORE, 0), _join(after) if after else None

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities (B, T, V)."""
        return self._mix([model(batch).log_softmax(-1) for model in self.models])

    def _valid(self, weights: Sequence[float]) -> bool:
        return math.isclose(sum(weights), 1, rel_tol=TOLERANCE)

    def _mix(self, log_probs: list[Tensor]) -> Tensor:
        """log Σ weight_i p_i, on the device of the first model."""
        device = log_probs[0].device
        logs = self.weights.log().tolist()  # numbers, since a CUDA graph cannot contain a transfer from the host
        return torch.logsumexp(
            torch.stack([p.to(device) + log for p, log in zip(log_probs, logs, strict=True)], -1), -1
        )


class Product(Mixture):
    """p(w | h) ∝ Π p_i(w | h)^weight_i: the geometric mean, in which every model has a veto (Hinton 2002).

    The sum of the weights is an inverse temperature: at 1 it is no sharper than its parts. The normalizer needs the
    probabilities of all tokens. Interpolated with its parts, Σ λ_i p_i + (1 - Σ λ_i) product, it leaves a token that
    one of them vetoes at least λ_i times the probability that another gives it.
    """

    rule = "the weights of a product are not all zero"

    def __init__(
        self, models: Sequence[Autoregressive], weights: Sequence[float] | Tensor, interpolation: Sequence[float] = ()
    ):
        super().__init__(models, weights)
        self.interpolation = [float(weight) for weight in interpolation]
        possible = not self.interpolation or len(self.interpolation) == len(self.models)
        if not possible or min(self.interpolation, default=0) < 0 or sum(self.interpolation) > 1 + TOLERANCE:
            raise UserError(
                "interpolation has a weight of 0 or more for each part, at most one together, unlike"
                f" {self.interpolation}."
            )

    def score(self, batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        """log p(target) (B, T), and the state after where one was passed; whole distributions of few rows, or of few
        positions of all rows, are in memory at a time."""
        if state is None:
            whole = bool(self.source_attention)  # recorded for all rows at once (`decoding/attention_recorder.py`)
            size = batch.rows if whole else max(1, POSITIONS // batch.input.size(1))
            parts = [batch.rows_of(slice(start, start + size)) for start in range(0, batch.rows, size)]
            return torch.cat([self._of_targets(self(part), part.target) for part in parts]), None
        scored, after = [], state
        size = max(1, POSITIONS // batch.rows)
        for ids, target in zip(torch.split(batch.input, size, 1), torch.split(batch.target, size, 1), strict=True):
            log_probs, after = self.step(ids, after, all_positions=True)
            scored.append(self._of_targets(log_probs, target))
        return torch.cat(scored, 1), after

    def _of_targets(self, log_probs: Tensor, target: Tensor) -> Tensor:
        of_targets = log_probs.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return of_targets.masked_fill(target == IGNORE, 0)

    def _valid(self, weights: Sequence[float]) -> bool:
        return any(weights)

    def _mix(self, log_probs: list[Tensor]) -> Tensor:
        device = log_probs[0].device
        weighted = [float(weight) * p.to(device) for weight, p in zip(self.weights, log_probs, strict=True) if weight]
        # Where every token is impossible for some model, none has any mass.
        product = torch.stack(weighted).sum(0).log_softmax(-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)
        if not self.interpolation:
            return product
        terms = [(max(0.0, 1 - sum(self.interpolation)), product), *zip(self.interpolation, log_probs, strict=True)]
        return torch.stack([p.to(device) + math.log(weight) for weight, p in terms if weight]).logsumexp(0)


def _tensors(model: Any) -> dict[str, Tensor]:
    """The tensors of a part, tied weights under their first name."""
    if isinstance(model, (Counted, Parts)):
        return dict(model.state_dict())
    named = model.state_dict(keep_vars=True)
    first = {id(tensor): name for name, tensor in reversed(named.items())}
    return {name: tensor.detach() for name, tensor in named.items() if first[id(tensor)] == name}


def _join(states: list[State]) -> State:
    first, *rest = states
    return MixtureState(first, _join(rest)) if rest else first


def _split(state: State, count: int) -> list[State]:
    if count == 1:
        return [state]
    assert isinstance(state, MixtureState)
    return [state.first, *_split(state.rest, count - 1)]
