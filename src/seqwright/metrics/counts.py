"""Additive counts: sufficient statistics of each example and a formula of their sums (decision 0056).

Scores, bootstrap intervals, paired significance tests and scores by length bucket are written once for all metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from seqwright.core.config import UserError
from seqwright.metrics.score import Floats, Score, bootstrap, signature

PRF = Literal["precision", "recall", "f1"]
LENGTH_EDGES = (10, 20, 30, 40, 50)
"""Boundaries of the source-length buckets."""


class NoTargetsError(UserError):
    """Data without a single token to predict: it has no likelihood, neither good nor bad."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Sufficient statistics of a metric for each example."""

    name: str
    rows: Floats
    """(examples, quantities); the statistics of a corpus are the sum over examples."""
    formula: Callable[[Floats], Floats]
    """Sums (N, quantities) of N samples to their scores (N,)."""
    signature: str
    resampled: Callable[[Floats], Floats] | None = None
    """The formula for resamples, where it is another: over the classes of all examples, also of those not drawn."""
    better: int = 1
    """1 if higher is better, -1 for errors."""
    biased: bool = False
    """Whether resampled scores, which are never negative, lie above the score: the interval is then the basic one."""

    @property
    def value(self) -> float:
        """The corpus score: the formula of the sum over examples."""
        return float(self.formula(self.rows.sum(0, keepdims=True))[0])

    def select(self, which: NDArray[np.int64]) -> Self:
        """The counts of the selected examples."""
        return replace(self, rows=self.rows[which])

    def grouped(self, size: int) -> Self:
        """Counts whose examples are groups of `size` consecutive ones, which are not independent of each other."""
        return replace(self, rows=self.rows.reshape(-1, size, self.rows.shape[1]).sum(1))


def rule_of_three(percentage: float, examples: int) -> tuple[float, float]:
    """The 95 % interval of 0 or 100 % of so many examples, of which a bootstrap has no width (Hanley & Lippman-Hand
    1983)."""
    return max(0.0, percentage - 300 / examples), min(100.0, percentage + 300 / examples)


def scores(counts: Iterable[Counts], *, resamples: int, seed: int) -> dict[str, Score]:
    """Scores by name with bootstrap confidence intervals; metrics over equally many examples share resamples."""
    metrics = list(counts)
    by_name: dict[str, Score] = {}
    for examples in {len(metric.rows) for metric in metrics}:
        group = [metric for metric in metrics if len(metric.rows) == examples]
        formulas = [(metric.rows, metric.resampled or metric.formula) for metric in group]
        intervals = bootstrap(formulas, resamples=resamples, seed=seed)
        for metric, (low, high) in zip(group, intervals, strict=True):
            if metric.biased and low is not None and high is not None:
                low, high = _basic_interval(metric.value, low, high)
            elif metric.formula is percentage and low is not None and low == high and low in (0.0, 100.0):
                low, high = rule_of_three(low, examples)
            by_name[metric.name] = Score(value=metric.value, low=low, high=high, signature=metric.signature)
    return {metric.name: by_name[metric.name] for metric in metrics}


def _basic_interval(value: float, low: float, high: float) -> tuple[float, float]:
    """The basic (reverse percentile) interval of percentiles, from 0 on and with the value inside."""
    return max(0.0, min(value, 2 * value - high)), max(value, 2 * value - low)


class BootstrapConfig(Protocol):
    """The bootstrap keys of an [evaluation] section."""

    @property
    def resamples(self) -> int: ...

    @property
    def seed(self) -> int: ...


def scores_json(counts: Iterable[Counts], config: BootstrapConfig) -> dict[str, Any]:
    """JSON of an evaluation: values by name, and under "scores" each with its confidence interval and signature."""
    with_intervals = scores(counts, resamples=config.resamples, seed=config.seed)
    as_json = {name: score.as_json() for name, score in with_intervals.items()}
    return {name: score["value"] for name, score in as_json.items()} | {"scores": as_json}


def values(counts: Iterable[Counts]) -> dict[str, float]:
    """Values by name without intervals, as logged during training."""
    return {metric.name: metric.value for metric in counts}


def nll_counts(rows: Floats, facts: str, *, targets: str = "target tokens") -> list[Counts]:
    """nll (nats) and perplexity per token. `rows` begin with the nll and the number of tokens of each example; `facts`
    is the signature without the metric's name; `targets` names the tokens in an error."""
    if not rows[:, 1].any():
        raise NoTargetsError(f"no {targets}: no score; give more text to score.")
    formulas: dict[str, Callable[[Floats], Floats]] = {"nll": mean, "perplexity": perplexity}
    return [
        Counts(name=name, rows=rows, formula=formula, signature=signature(name, facts), better=-1)
        for name, formula in formulas.items()
    ]


def perplexity(sums: Floats) -> Floats:
    """exp of the mean; infinite above 709 nats, which only a diverged model has."""
    with np.errstate(over="ignore"):
        return np.exp(mean(sums))


def mean(sums: Floats) -> Floats:
    """First quantity / second."""
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


def percentage(sums: Floats) -> Floats:
    """First quantity / second, in per cent; 0 for 0 / 0."""
    return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)


def prf_formula(kind: PRF) -> Callable[[Floats], Floats]:
    """Formula of precision, recall or F1, in per cent, from sums of (matched, predicted, gold) items."""
    # Recall divides by gold, precision by predicted, and F1 by the mean of both.
    divisor = np.array({"precision": [0, 1, 0], "recall": [0, 0, 1], "f1": [0, 0.5, 0.5]}[kind])
    return lambda sums: 100 * sums[:, 0] / np.maximum(sums @ divisor, 1)


def prf_row(name: str, matched: int, predicted: int, gold: int) -> dict[str, Any]:
    """A row of a classification report: support ("examples"), predictions ("answered"), precision, recall and F1 in per
    cent; None for a zero denominator."""
    return {
        "class": name,
        "examples": gold,
        "answered": predicted,
        "precision": 100 * matched / predicted if predicted else None,
        "recall": 100 * matched / gold if gold else None,
        "f1": 200 * matched / (predicted + gold) if predicted + gold else None,
    }


def by_length(
    counts: Counts, lengths: Sequence[int], edges: Sequence[int] = LENGTH_EDGES
) -> list[tuple[str, int, float]]:
    """(length range, examples, score) of each non-empty bucket of source lengths."""
    bucket = np.searchsorted(np.asarray(edges), np.asarray(lengths), side="right")
    starts = [0, *edges]
    buckets = []
    for n, start in enumerate(starts):
        members = np.flatnonzero(bucket == n)
        if len(members):
            label = f"{start}-{starts[n + 1] - 1}" if n + 1 < len(starts) else f"{start}+"
            buckets.append((label, len(members), counts.select(members).value))
    return buckets
