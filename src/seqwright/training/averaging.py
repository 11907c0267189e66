"""Weight averaging: exponential moving average (EMA) over steps, and the mean of checkpoints."""

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
        named = weights(model)
        self.model_tensors = [tensor.detach() for tensor in named.values()]
        self.tensors = {name: tensor.detach().clone() for name, tensor in named.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Updates the average with the weights after `step` steps; the decay warms up, so that the random
        initialization is forgotten early."""
        decay = min(self.decay, step / (step + 10))
        torch._foreach_lerp_(list(self.tensors.values()), self.model_tensors, 1 - decay)  # a few fused kernels

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager under which the model has the averaged weights; restores its own afterwards."""
        saved = {name: tensor.detach().clone() for name, tensor in weights(self.model).items()}
        load_weights(self.model, self.tensors)
        try:
            yield
        finally:
            load_weights(self.model, saved)


def average_weights(checkpoints: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints of a model, computed in float64."""
    return {
        name: torch.stack([checkpoint[name].double() for checkpoint in checkpoints]).mean(0).to(tensor.dtype)
        for name, tensor in checkpoints[0].items()
    }
