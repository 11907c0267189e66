"""Averages of weights: a running one over steps (EMA), and the mean of several checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqwright.training.weights import load_weights, weights


class EMA:
    """The exponential moving average of a model's weights (Polyak & Juditsky 1992)."""

    def __init__(self, model: nn.Module, decay: float):
        self.model, self.decay = model, decay
        own = weights(model)
        self.own = [tensor.detach() for tensor in own.values()]
        self.tensors = {name: tensor.detach().clone() for name, tensor in own.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after `step` steps; early on the average is short, so that fresh weights fade soon."""
        kept = min(self.decay, step / (step + 10))
        torch._foreach_lerp_(list(self.tensors.values()), self.own, 1 - kept)  # all of them in a few kernels

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; outside, its own."""
        own = {name: tensor.detach().clone() for name, tensor in weights(self.model).items()}
        load_weights(self.model, self.tensors)
        try:
            yield
        finally:
            load_weights(self.model, own)


def mean(several: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights of one model, summed in float64."""
    return {
        name: torch.stack([one[name].double() for one in several]).mean(0).to(tensor.dtype)
        for name, tensor in several[0].items()
    }
