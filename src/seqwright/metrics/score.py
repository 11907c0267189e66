"""A score: a number, the interval it may be trusted to, and the signature that says how it was taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    value: float
    low: float | None = None
    """Ends of the interval that holds 95 % of the bootstrap's answers; None where there are too few units."""
    high: float | None = None
    signature: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


FEWEST_UNITS = 10
"""Below this many units a bootstrap interval would pretend."""
DRAWN = 1 << 21
"""Units drawn before they are added up: one product of matrices for many resamples."""

Interval = tuple[float, float] | tuple[None, None]


def bootstrap(
    asked: Sequence[tuple[Floats, Callable[[Floats], Floats]]], *, resamples: int, seed: int
) -> list[Interval]:
    """The 95 % percentile interval (Efron 1979) of each score over resampled units, the same draws for all of them.

    Metrics are additive: counts (units, quantities) are summed over a resample, and their score maps sums
    (resamples, quantities) to numbers.
    """
    units = len(asked[0][0])
    if units < FEWEST_UNITS or resamples == 0:
        return [(None, None)] * len(asked)
    generator = np.random.default_rng(seed)
    sums = [np.empty((resamples, counts.shape[1])) for counts, _ in asked]
    block = max(1, DRAWN // units)
    for begin in range(0, resamples, block):
        span = slice(begin, min(begin + block, resamples))
        times = np.empty((span.stop - begin, units))  # how often each resample holds each unit
        for row in times:
            row[:] = np.bincount(generator.integers(0, units, units), minlength=units)
        for own, (counts, _) in zip(sums, asked, strict=True):
            own[span] = times @ counts
    ends = [np.percentile(score(own), [2.5, 97.5]).tolist() for own, (_, score) in zip(sums, asked, strict=True)]
    return [(low, high) for low, high in ends]
