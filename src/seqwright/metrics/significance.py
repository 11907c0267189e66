"""Paired significance tests of two systems on the same examples: bootstrap and approximate randomization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts
from seqwright.metrics.score import Floats

TRIALS = 1000
ALPHA = 0.05
"""Significance level: a difference with a greater p-value is a tie."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Improvement of the first system over the second in the metric's unit; positive is better, for errors too."""

    value: float
    low: float
    """Ends of the 95 % paired bootstrap interval."""
    high: float
    p: float
    """Two-sided p-value of approximate randomization."""
    signature: str

    @property
    def verdict(self) -> str:
        """better, worse or tie."""
        if self.p > ALPHA:
            return "tie"
        return "better" if self.value > 0 else "worse"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def compare(one: Counts, other: Counts, *, trials: int = TRIALS, seed: int = 1) -> Difference:
    """Paired bootstrap interval (Koehn 2004) and approximate randomization (Riezler & Maxwell 2005)."""
    if one.signature != other.signature or len(one.rows) != len(other.rows):
        raise UserError(
            f"a paired test needs the same metric on the same examples, not {one.signature} of {len(one.rows):,} and"
            f" {other.signature} of {len(other.rows):,}; evaluate both systems alike."
        )
    value = one.better * (one.value - other.value)
    low, high = np.percentile(_resampled(one, other, trials, seed), [2.5, 97.5])
    permuted = np.abs(_permuted(one, other, trials, seed))
    # Add-one: the observed assignment is one of the permutations under the null hypothesis, so p is never 0.
    p = (1 + int((permuted >= abs(value) - 1e-12).sum())) / (1 + trials)
    signature = f"{one.signature}|paired bs+ar:{trials}|seed:{seed}"
    return Difference(value=value, low=float(low), high=float(high), p=p, signature=signature)


def _resampled(one: Counts, other: Counts, trials: int, seed: int) -> Floats:
    """Differences on bootstrap resamples, the same examples for both systems."""
    examples = len(one.rows)
    generator = np.random.default_rng(seed)

    def draw() -> tuple[Floats, Floats]:
        multiplicity = np.bincount(generator.integers(0, examples, examples), minlength=examples).astype(np.float64)
        return multiplicity, multiplicity

    return _differences(one, other, trials, draw)


def _permuted(one: Counts, other: Counts, trials: int, seed: int) -> Floats:
    """Differences after swapping the two systems' outputs of each example with probability 1/2."""
    generator = np.random.default_rng(seed)
    both = replace(one, rows=np.concatenate([one.rows, other.rows]))

    def draw() -> tuple[Floats, Floats]:
        keeps = generator.integers(0, 2, len(one.rows)).astype(np.float64)
        return np.concatenate([keeps, 1 - keeps]), np.concatenate([1 - keeps, keeps])

    return _differences(both, both, trials, draw)


def _differences(one: Counts, other: Counts, trials: int, weigh: Callable[[], tuple[Floats, Floats]]) -> Floats:
    """(trials,) score differences; `weigh` draws the multiplicity of each row for either system."""
    sums = np.empty((2, trials, one.rows.shape[1]))
    for n in range(trials):
        first, second = weigh()
        sums[0, n], sums[1, n] = first @ one.rows, second @ other.rows
    return one.better * (one.formula(sums[0]) - other.formula(sums[1]))
