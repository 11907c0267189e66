"""The objective: a batch to a loss that adds up. This module is what compilation and data parallelism wrap."""

from __future__ import annotations

from torch import Tensor, nn

from seqwright.batch import Batch
from seqwright.interface import State, Trainable


class Objective(nn.Module):
    """Negative log-likelihood of the targets, with label smoothing where asked for.

    Sums cross this boundary, never means: micro-batches and ranks are added up and divided once by the token count of
    the whole step, so that accumulated = one batch.
    """

    def __init__(self, model: Trainable, *, smoothing: float = 0.0):
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, batch: Batch, state: State | None = None) -> tuple[Tensor, Tensor, State | None]:
        """(loss sum, token count, state after)."""
        hidden, state = self.model.hidden(batch, state)
        total, count = self.model.head.loss(hidden, batch.target, self.smoothing)
        return total, count, state
