"""A score: a number, the interval it may be trusted to, and the signature that says how it was taken."""

from __future__ import annotations

from collections.abc import Callable
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


def bootstrap(
    counts: Floats, score: Callable[[Floats], Floats], *, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    """The 95 % percentile interval (Efron 1979) of `score` over resampled units.

    Metrics are additive: counts (units, quantities) are summed over a resample, and `score` maps sums
    (resamples, quantities) to numbers.
    """
    units = len(counts)
    if units < FEWEST_UNITS or resamples == 0:
        return None, None
    generator = np.random.default_rng(seed)
    sums = np.empty((resamples, counts.shape[1]))
    for n in range(resamples):
        times = np.bincount(generator.integers(0, units, units), minlength=units)
        sums[n] = times @ counts
    low, high = np.percentile(score(sums), [2.5, 97.5])
    return float(low), float(high)
