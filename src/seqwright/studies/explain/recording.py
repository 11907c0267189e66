"""Intermediate values of shipped modules, recorded by forward hooks; parameters set by name or formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seqwright.layers.attention import Attend
from seqwright.layers.recording import Arguments, Options, recorded_calls


@dataclass
class Recorded:
    """Outputs of the modules of a model by name, in the order of the forward pass."""

    outputs: dict[str, Tensor] = field(default_factory=dict)
    """Of modules that return several tensors, the first; gradients are retained."""
    attention: dict[str, AttentionCall] = field(default_factory=dict)
    """Calls of `Attend` by module name."""


@dataclass
class AttentionCall:
    """What attention was computed from, (B, H, T or K, E), and its scores and weights (B, H, T, K)."""

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    weights: Tensor


@contextmanager
def recorded(model: nn.Module) -> Iterator[Recorded]:
    """Records every module of a model while entered."""
    record = Recorded()
    names = {module: name for name, module in model.named_modules()}

    def keep_output(module: nn.Module, arguments: Arguments, options: Options, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor):
            record.outputs[names[module]] = first
            if first.requires_grad:
                first.retain_grad()

    def keep_attention(attend: Attend, arguments: Arguments, options: Options, output: Any) -> None:
        query, key, value = arguments
        scores, weights = attend.scores(query, key, **options), attend.weights(query, key, **options)
        record.attention[names[attend]] = AttentionCall(query, key, value, scores, weights)

    attends = [module for module in names if isinstance(module, Attend)]
    with recorded_calls(list(names), keep_output), recorded_calls(attends, keep_attention):
        yield record


def set_parameters(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Sets parameters by name; every name exists with the shape of its value."""
    named = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            assert named[name].shape == value.shape, name
            named[name].copy_(value)


def set_sinusoidal_parameters(module: nn.Module) -> None:
    """Sets all parameters to values of sin n, at most 1/2: no random generator is part of an example."""
    with torch.no_grad():
        for n, parameter in enumerate(module.parameters(), 1):
            values = torch.sin(3 * torch.arange(parameter.numel(), dtype=torch.float64) + n) / 2
            parameter.copy_(values.view_as(parameter))
