"""Scores with bootstrap confidence intervals, and the signature that makes them reproducible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    """A metric's value, its 95 % confidence interval and its signature."""

    value: float
    low: float | None = None
    """Ends of the 95 % percentile bootstrap interval, for 0 and 100 % by the rule of three; None with too few units."""
    high: float | None = None
    signature: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def signature(*words: str, **facts: object) -> str:
    """What a score depends on, as "word|key:value|…", in order; True is its key alone, None and False are left out."""
    stated = {key: value for key, value in facts.items() if value is not None and value is not False}
    return "|".join([*words, *(key if value is True else f"{key}:{value}" for key, value in stated.items())])


MIN_UNITS = 10
"""Fewer resampling units have no meaningful bootstrap interval."""
BLOCK_UNITS = 1 << 21
"""Units drawn per block of resamples: bounds memory, and sums a block by one matrix product."""

Interval = tuple[float, float] | tuple[None, None]


def bootstrap(
    metrics: Sequence[tuple[Floats, Callable[[Floats], Floats]]], *, resamples: int, seed: int
) -> list[Interval]:
    """95 % percentile bootstrap interval (Efron 1979) of each metric over resampled units, the same draws for all.

    A metric is (counts, formula): counts (units, quantities) are summed over each resample, and the formula maps sums
    (resamples, quantities) to scores (resamples,).
    """
    units = len(metrics[0][0])
    if units < MIN_UNITS or resamples == 0:
        return [(None, None)] * len(metrics)
    generator = np.random.default_rng(seed)
    sums = [np.empty((resamples, counts.shape[1])) for counts, _ in metrics]
    block = max(1, BLOCK_UNITS // units)
    for start in range(0, resamples, block):
        span = slice(start, min(start + block, resamples))
        multiplicity = np.empty((span.stop - start, units))  # multiplicity of each unit in each resample
        for row in multiplicity:
            row[:] = np.bincount(generator.integers(0, units, units), minlength=units)
        for metric_sums, (counts, _) in zip(sums, metrics, strict=True):
            metric_sums[span] = multiplicity @ counts
    ends = [
        np.percentile(formula(metric_sums), [2.5, 97.5]).tolist()
        for metric_sums, (_, formula) in zip(sums, metrics, strict=True)
    ]
    return [(low, high) for low, high in ends]
