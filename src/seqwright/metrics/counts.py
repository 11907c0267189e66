"""Additive counts: one row for each example, a formula for their sums; scores, intervals, buckets and tests follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.score import Floats, Score, bootstrap

Agreement = Literal["precision", "recall", "f1"]
EDGES = (10, 20, 30, 40, 50)
"""Source lengths at which one bucket ends and the next begins."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a metric counted in each example."""

    name: str
    rows: Floats
    """(examples, quantities); a corpus is their sum."""
    formula: Callable[[Floats], Floats]
    """Sums (N, quantities) to scores (N,)."""
    signature: str
    better: int = 1
    """1 where greater is better, -1 for errors."""

    @property
    def value(self) -> float:
        """The score of all examples together."""
        return float(self.formula(self.rows.sum(0, keepdims=True))[0])

    def select(self, which: NDArray[np.int64]) -> Self:
        """These examples alone."""
        return replace(self, rows=self.rows[which])


def scores(counts: Iterable[Counts], *, resamples: int, seed: int) -> dict[str, Score]:
    """Values by name, each with its bootstrap interval and signature; those of the same examples share resamples."""
    listed = list(counts)
    found: dict[str, Score] = {}
    for examples in {len(one.rows) for one in listed}:
        alike = [one for one in listed if len(one.rows) == examples]
        intervals = bootstrap([(one.rows, one.formula) for one in alike], resamples=resamples, seed=seed)
        for one, (low, high) in zip(alike, intervals, strict=True):
            found[one.name] = Score(value=one.value, low=low, high=high, signature=one.signature)
    return {one.name: found[one.name] for one in listed}


class Resampled(Protocol):
    """An [evaluation] section: how intervals are found."""

    @property
    def resamples(self) -> int: ...

    @property
    def seed(self) -> int: ...


def scored(counts: Iterable[Counts], config: Resampled) -> dict[str, Any]:
    """Plain values by name, and under "scores" each with its interval and signature, as JSON."""
    with_intervals = scores(counts, resamples=config.resamples, seed=config.seed)
    found = {name: score.as_json() for name, score in with_intervals.items()}
    return {name: score["value"] for name, score in found.items()} | {"scores": found}


def values(counts: Iterable[Counts]) -> dict[str, float]:
    """Plain values by name, without intervals: what the log of a training shows."""
    return {one.name: one.value for one in counts}


def nll_counts(rows: Floats, facts: str) -> list[Counts]:
    """nll and perplexity of a token, from the nll and the number of tokens of each example (and perhaps more); `facts`
    are what their signatures say beside the name."""
    formulas: dict[str, Callable[[Floats], Floats]] = {"nll": mean, "perplexity": lambda sums: np.exp(mean(sums))}
    return [
        Counts(name=name, rows=rows, formula=formula, signature=f"{name}|{facts}", better=-1)
        for name, formula in formulas.items()
    ]


def mean(sums: Floats) -> Floats:
    """The first quantity over the second."""
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


def ratio(sums: Floats) -> Floats:
    """The first quantity over the second, in per cent; 0 where there is nothing."""
    return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)


def agreement(kind: Agreement) -> Callable[[Floats], Floats]:
    """The formula of precision, recall or F1, in per cent, of (shared, an output's own, the reference's)."""
    divisor = np.array({"precision": [0, 1, 0], "recall": [0, 0, 1], "f1": [0, 0.5, 0.5]}[kind])
    return lambda sums: 100 * sums[:, 0] / np.maximum(sums @ divisor, 1)


def rates(name: str, right: int, said: int, wanted: int) -> dict[str, Any]:
    """A row of a table of classes: examples of one, how many were called so, and precision, recall and F1 in per cent;
    None where there is nothing to divide by."""
    return {
        "class": name,
        "examples": wanted,
        "answered": said,
        "precision": 100 * right / said if said else None,
        "recall": 100 * right / wanted if wanted else None,
        "f1": 200 * right / (said + wanted) if said + wanted else None,
    }


def by_length(counts: Counts, lengths: Sequence[int], edges: Sequence[int] = EDGES) -> list[tuple[str, int, float]]:
    """(lengths, examples, score) of each bucket of source lengths that holds any example."""
    bucket = np.searchsorted(np.asarray(edges), np.asarray(lengths), side="right")
    starts = [0, *edges]
    found = []
    for n, start in enumerate(starts):
        which = np.flatnonzero(bucket == n)
        if len(which):
            label = f"{start}-{starts[n + 1] - 1}" if n + 1 < len(starts) else f"{start}+"
            found.append((label, len(which), counts.select(which).value))
    return found
