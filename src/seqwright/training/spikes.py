"""Loss spike detection: a loss far above its exponential moving average, from three numbers saved in checkpoints.

Training rolls back to a checkpoint and skips the batches around the spike, as PaLM did (Chowdhery et al. 2022, §5.1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

DECAY = 0.98
"""Decay of the moving average: about the last fifty losses."""
MIN_LOSSES = 20
"""Losses needed before one can count as a spike."""


class Trend(NamedTuple):
    """Exponentially weighted mean and variance of the loss."""

    mean: float = 0.0
    variance: float = 0.0
    steps: float = 0.0

    def updated(self, loss: float) -> Trend:
        """The trend after one more loss."""
        weight = max(1 - DECAY, 1 / (self.steps + 1))  # the first losses have equal weight
        deviation = loss - self.mean
        mean = self.mean + weight * deviation
        return Trend(mean, (1 - weight) * (self.variance + weight * deviation * deviation), self.steps + 1)

    def is_spike(self, loss: float, deviations: float) -> bool:
        """Whether a loss is more than so many standard deviations above the mean; NaN and infinity always are."""
        if not math.isfinite(loss):
            return True
        return self.steps >= MIN_LOSSES and loss > self.mean + deviations * math.sqrt(self.variance)
