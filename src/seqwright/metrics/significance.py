"""Paired significance tests of systems on the same examples: bootstrap, approximate randomization, Holm correction.

A system is one model, or several trained with different seeds, whose mean score is compared.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts
from seqwright.metrics.score import BLOCK_UNITS, MIN_UNITS, Floats

TRIALS = 2000
"""Resamples and permutations: the smallest p-value, 1 / 2001, survives Holm's correction for 100 tests."""
ALPHA = 0.05
"""Significance level: a difference with a greater p-value is a tie."""

T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5 % points of Student's t with 1, 2, … degrees of freedom; for more, the series of `_t95`."""
Z95 = 1.959964
"""97.5 % point of the normal distribution."""

PERCENTAGES = {"accuracy", "f1", "precision", "recall", "match", "bleu", "chrf", "rouge"}
"""Scores from 0 to 100, by a word of their names: sentence_accuracy, rouge_l."""
CORRELATIONS = {"pearson", "spearman", "matthews"}
"""Scores from -1 to 1."""
UNBOUNDED = {"psnr"}
"""Logarithms. All other scores are losses and errors: at least 0."""

System = Sequence[Counts]
"""Counts of a metric on the same examples, of one model or of one for each seed."""
Verdict = Literal["better", "worse", "tie"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Improvement of the first system over the second in the metric's unit; positive is better, for errors too."""

    value: float
    low: float | None
    """Ends of the 95 % interval over examples and seeds; None with too few examples."""
    high: float | None
    p: float
    """Two-sided p-value of approximate randomization."""
    p_holm: float
    """The p-value after Holm's correction for all tests of a comparison."""
    signature: str

    @property
    def verdict(self) -> Verdict:
        """better or worse where the corrected test and the interval agree, or else tie."""
        if self.p_holm > ALPHA or self.low is None or self.high is None or self.low <= 0 <= self.high:
            return "tie"
        return "better" if self.value > 0 else "worse"

    def __neg__(self) -> Difference:
        """That of the second system over the first."""
        low, high = (None, None) if self.low is None or self.high is None else (-self.high, -self.low)
        return replace(self, value=0.0 - self.value, low=low, high=high)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def compare(one: Counts, other: Counts, *, trials: int = TRIALS, seed: int = 1) -> Difference:
    """Paired bootstrap interval (Koehn 2004) and approximate randomization (Riezler & Maxwell 2005)."""
    return difference([one], [other], *resampled([[one], [other]], trials=trials, seed=seed), trials=trials, seed=seed)


def difference(
    one: System, other: System, resampled_one: Floats, resampled_other: Floats, *, trials: int, seed: int
) -> Difference:
    """The difference of two systems; their `resampled` scores are of the same resamples."""
    first = one[0]
    sign = first.better
    low, high = interval([one, other], sign * (resampled_one - resampled_other) + 0.0, seed=seed)
    return Difference(
        value=sign * (mean_value(one) - mean_value(other)) + 0.0,  # equal scores differ by 0, not by -0.0
        low=low,
        high=high,
        p=(p := permutation_p(one, other, trials=trials, seed=seed)),
        p_holm=p,
        signature=f"{first.signature}|paired bs+ar:{trials}|seed:{seed}",
    )


def mean_value(system: System) -> float:
    """Mean score over seeds."""
    return float(np.mean([counts.value for counts in system]))


def interval(systems: Sequence[System], resamples: Floats, *, seed: int = 1) -> tuple[float, float] | tuple[None, None]:
    """95 % percentile interval of the resampled score of one system, or difference of two, with the variance of their
    seeds; None without resamples."""
    if not len(resamples):
        return None, None
    low, high = np.percentile(resamples + _seed_errors(systems, len(resamples), seed), [2.5, 97.5])
    return float(low), float(high)


def interval_over_seeds(
    values: Sequence[float], bounds: Sequence[tuple[float, float] | None]
) -> tuple[float, float] | None:
    """95 % interval of the mean of a score over seeds: Student's t over them and, in quadrature, the interval over
    examples, which the seeds share, so that more seeds do not narrow it. `bounds` are the latter, of each seed. None
    where nothing is known of either."""
    mean, known = statistics.fmean(values), [pair for pair in bounds if pair is not None]
    over_seeds = 0.0
    if len(values) > 1:
        over_seeds = _t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    if len(known) < len(values):
        return (mean - over_seeds, mean + over_seeds) if len(values) > 1 else None
    low, high = (statistics.fmean(ends) for ends in zip(*known, strict=True))
    return mean - math.hypot(mean - low, over_seeds), mean + math.hypot(high - mean, over_seeds)


def possible(metric: str, low: float, high: float) -> tuple[float, float]:
    """The ends of an interval within the values that a metric can have: those of few seeds may lie beyond."""
    words = {*metric.split("_")}
    least = -1.0 if words & CORRELATIONS else -math.inf if words & UNBOUNDED else 0.0
    most = 1.0 if words & CORRELATIONS else 100.0 if words & PERCENTAGES else math.inf
    return min(max(low, least), most), min(max(high, least), most)


def _t95(freedom: int) -> float:
    """97.5 % point of Student's t: the table, then two terms of its series (Abramowitz & Stegun 1964, 26.7.5)."""
    if freedom <= len(T95):
        return T95[freedom - 1]
    z = Z95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _seed_errors(systems: Sequence[System], trials: int, seed: int) -> Floats:
    """(trials,): errors of mean scores over few seeds, drawn from Student's t with Welch's degrees of freedom.

    Resampling two or three seeds has a variance that is too small: 17 and 12 % of equal recipes were told apart.
    """
    scores = [[counts.value for counts in system] for system in systems if len(system) > 1]
    variances = np.array([np.var(values, ddof=1) / len(values) for values in scores])
    if not variances.any():
        return np.zeros(trials)
    freedom = variances.sum() ** 2 / (variances**2 / [len(values) - 1 for values in scores]).sum()
    errors: Floats = np.sqrt(variances.sum()) * np.random.default_rng(seed).standard_t(freedom, trials)
    return errors


def resampled(systems: Sequence[System], *, trials: int = TRIALS, seed: int = 1) -> Floats:
    """(systems, trials): mean scores on bootstrap resamples, the same examples for all; no trials with too few."""
    check_paired([counts for system in systems for counts in system])
    examples = len(systems[0][0].rows)
    if examples < MIN_UNITS:
        return np.empty((len(systems), 0))
    generator = np.random.default_rng(seed)
    models = [counts for system in systems for counts in system]
    sums = [np.empty((trials, counts.rows.shape[1])) for counts in models]
    for span in _spans(trials, examples):
        multiplicity = np.empty((span.stop - span.start, examples))
        for row in multiplicity:
            row[:] = np.bincount(generator.integers(0, examples, examples), minlength=examples)
        for model_sums, counts in zip(sums, models, strict=True):
            model_sums[span] = multiplicity @ counts.rows
    scores = iter(
        [(counts.resampled or counts.formula)(model_sums) for model_sums, counts in zip(sums, models, strict=True)]
    )
    return np.stack([np.mean([next(scores) for _ in system], 0) for system in systems])


def permutation_p(one: System, other: System, *, trials: int = TRIALS, seed: int = 1) -> float:
    """Two-sided p-value: the share of permutations whose difference is at least the observed one.

    The two systems' outputs of an example are swapped with probability 1/2; of few examples all 2ⁿ ways are enumerated.
    The counts of several seeds are averaged, so that all outputs of a system are swapped together.
    """
    check_paired([*one, *other])
    formula, mine, theirs = one[0].formula, _mean_rows(one), _mean_rows(other)
    swaps, sums = mine - theirs, (mine.sum(0), theirs.sum(0))
    exact = 2 ** min(len(swaps), 63) <= trials
    generator = np.random.default_rng(seed)
    blocks: Iterator[Floats]
    if exact:
        blocks = iter([np.array(list(itertools.product([0.0, 1.0], repeat=len(swaps))))])
    else:
        blocks = (
            generator.integers(0, 2, (span.stop - span.start, len(swaps))).astype(np.float64)
            for span in _spans(trials, len(swaps))
        )
    observed = abs(float((formula(sums[0][None]) - formula(sums[1][None]))[0]))
    tolerance = 1e-9 * max(1.0, observed)  # equal differences must count, whatever the order of their sums
    extreme, count = 0, 0
    for swapped in blocks:
        moved = swapped @ swaps
        permuted = np.abs(formula(sums[0] - moved) - formula(sums[1] + moved))
        extreme, count = extreme + int((permuted >= observed - tolerance).sum()), count + len(permuted)
    # Add-one: the observed assignment is one of the permutations under the null hypothesis, so p is never 0.
    return extreme / count if exact else (1 + extreme) / (1 + count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of simultaneous tests, which bound the probability of any false positive (Holm 1979)."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    scaled = np.asarray(p_values, np.float64)[order] * np.arange(len(p_values), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(p) for p in adjusted]


def influences(one: System, other: System) -> Floats:
    """(examples,): how much the difference would fall without each example (jackknife); positive favors the first."""
    check_paired([*one, *other])
    mine, theirs = (_leave_one_out(system) for system in (one, other))
    values: Floats = one[0].better * ((mine[0] - theirs[0]) - (mine[1:] - theirs[1:]))
    return values


def own_differences(one: System, other: System) -> Floats:
    """(examples,): the difference on each example alone; positive favors the first, 0 where there is no score."""
    mine, theirs = (_mean_rows(system) for system in (one, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        values: Floats = one[0].better * (one[0].formula(mine) - other[0].formula(theirs))
    return np.nan_to_num(values)


def _leave_one_out(system: System) -> Floats:
    """(1 + examples,): the score of all examples, then of all but each."""
    rows = _mean_rows(system)
    total = rows.sum(0, keepdims=True)
    return system[0].formula(np.concatenate([total, total - rows]))


def _mean_rows(system: System) -> Floats:
    rows: Floats = np.mean([counts.rows for counts in system], 0)
    return rows


def _spans(trials: int, examples: int) -> Iterator[slice]:
    """Blocks of trials whose draws fit into memory."""
    block = max(1, BLOCK_UNITS // max(1, examples))
    return (slice(start, min(start + block, trials)) for start in range(0, trials, block))


def check_paired(models: Sequence[Counts]) -> None:
    """Raises unless all counts are of the same metric on equally many examples."""
    first = models[0]
    for counts in models[1:]:
        if counts.signature != first.signature or counts.rows.shape != first.rows.shape:
            raise UserError(
                f"a paired test needs the same metric on the same examples, not {first.signature} of"
                f" {len(first.rows):,} and {counts.signature} of {len(counts.rows):,}; evaluate both systems alike."
            )
