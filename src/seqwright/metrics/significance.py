"""Paired tests: whether one system is better than another on the same examples, or only luckier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts
from seqwright.metrics.score import Floats

TRIALS = 1000
ENOUGH = 0.05
"""The greatest p-value at which a difference is called one."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How much better the first system is, in the metric's own unit; positive is better whatever the metric's sense."""

    value: float
    low: float
    """Ends of the interval that holds 95 % of the bootstrap's differences."""
    high: float
    p: float
    """How often a difference as large arises when outputs are exchanged at random between the systems."""
    signature: str

    @property
    def verdict(self) -> str:
        if self.p > ENOUGH:
            return "tie"
        return "better" if self.value > 0 else "worse"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def compare(one: Counts, other: Counts, *, trials: int = TRIALS, seed: int = 1) -> Difference:
    """Paired bootstrap interval (Koehn 2004) and approximate randomization (Riezler & Maxwell 2005)."""
    if one.signature != other.signature or len(one.rows) != len(other.rows):
        raise UserError(
            f"only scores of one kind on the same examples can be compared, not {one.signature} of {len(one.rows):,}"
            f" with {other.signature} of {len(other.rows):,}."
        )
    value = one.better * (one.value - other.value)
    low, high = np.percentile(_resampled(one, other, trials, seed), [2.5, 97.5])
    exchanged = np.abs(_exchanged(one, other, trials, seed))
    # The observed outcome is one of those possible under the hypothesis: it counts itself.
    p = (1 + int((exchanged >= abs(value) - 1e-12).sum())) / (1 + trials)
    signature = f"{one.signature}|paired bs+ar:{trials}|seed:{seed}"
    return Difference(value=value, low=float(low), high=float(high), p=p, signature=signature)


def _resampled(one: Counts, other: Counts, trials: int, seed: int) -> Floats:
    """Differences on resampled examples, the same for both."""
    examples = len(one.rows)
    generator = np.random.default_rng(seed)

    def draw() -> tuple[Floats, Floats]:
        times = np.bincount(generator.integers(0, examples, examples), minlength=examples).astype(np.float64)
        return times, times

    return _differences(one, other, trials, draw)


def _exchanged(one: Counts, other: Counts, trials: int, seed: int) -> Floats:
    """Differences after each example's outputs were exchanged or not, by the toss of a coin."""
    generator = np.random.default_rng(seed)
    both = replace(one, rows=np.concatenate([one.rows, other.rows]))

    def toss() -> tuple[Floats, Floats]:
        stays = generator.integers(0, 2, len(one.rows)).astype(np.float64)
        return np.concatenate([stays, 1 - stays]), np.concatenate([1 - stays, stays])

    return _differences(both, both, trials, toss)


def _differences(one: Counts, other: Counts, trials: int, weigh: Callable[[], tuple[Floats, Floats]]) -> Floats:
    sums = np.empty((2, trials, one.rows.shape[1]))
    for n in range(trials):
        first, second = weigh()
        sums[0, n], sums[1, n] = first @ one.rows, second @ other.rows
    return one.better * (one.formula(sums[0]) - other.formula(sums[1]))
