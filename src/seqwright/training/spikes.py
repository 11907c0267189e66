"""Loss spikes: a loss far above the recent ones, told by a few numbers that a checkpoint can carry.

Going back to a checkpoint and leaving the batches of the spike out is how large models are trained through them
(Chowdhery et al. 2022, §5.1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

MEMORY = 0.98
"""How much of the trend is kept at each step: about the last fifty losses."""
BEGINNING = 20
"""Losses that must have been seen before one can be called a spike."""


class Trend(NamedTuple):
    """The recent course of the loss, exponentially weighted."""

    mean: float = 0.0
    variance: float = 0.0
    seen: float = 0.0

    def followed(self, loss: float) -> Trend:
        """The trend with one more loss in it."""
        weight = max(1 - MEMORY, 1 / (self.seen + 1))  # the first losses count alike
        apart = loss - self.mean
        mean = self.mean + weight * apart
        return Trend(mean, (1 - weight) * (self.variance + weight * apart * apart), self.seen + 1)

    def spikes(self, loss: float, deviations: float) -> bool:
        """Whether this loss stands so many standard deviations above the trend; what is not finite always does."""
        if not math.isfinite(loss):
            return True
        return self.seen >= BEGINNING and loss > self.mean + deviations * math.sqrt(self.variance)
