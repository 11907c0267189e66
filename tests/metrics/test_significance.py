"""Paired significance tests against all permutations, scipy and brute force; Holm's correction by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from seqwright.core.config import UserError
from seqwright.metrics.counts import Counts, mean, percentage, prf_formula
from seqwright.metrics.significance import (
    Difference,
    compare,
    difference,
    holm,
    influences,
    mean_value,
    percentiles,
    permutation_p,
    resampled,
)


def accuracy_counts(*rows: int) -> Counts:
    counted = np.stack([np.array(rows), np.ones(len(rows))], 1).astype(np.float64)
    return Counts(name="accuracy", rows=counted, formula=percentage, signature="accuracy")


def f1_counts(examples: int, seed: int) -> Counts:
    """(matched, predicted, gold) of each example: F1 is not a mean over examples."""
    generator = np.random.default_rng(seed)
    predicted, gold = generator.integers(1, 5, (2, examples))
    matched = generator.integers(0, np.minimum(predicted, gold) + 1)
    rows = np.stack([matched, predicted, gold], 1).astype(np.float64)
    return Counts(name="f1", rows=rows, formula=prf_formula("f1"), signature="f1")


def all_permutations_p(one: Counts, other: Counts) -> float:
    """The exact p-value, by swapping rows one by one."""
    observed = abs(one.value - other.value)
    extreme = 0
    for swaps in itertools.product([False, True], repeat=len(one.rows)):
        chosen = np.array(swaps)[:, None]
        mine, theirs = np.where(chosen, other.rows, one.rows), np.where(chosen, one.rows, other.rows)
        extreme += abs(replace(one, rows=mine).value - replace(one, rows=theirs).value) >= observed - 1e-9
    return extreme / 2 ** len(one.rows)


def test_p_value_of_few_examples_is_exact() -> None:
    assert compare(accuracy_counts(1, 1, 1, 1), accuracy_counts(0, 0, 0, 0)).p == 2 / 16
    for seed in range(4):
        one, other = f1_counts(8, seed), f1_counts(8, seed + 100)
        assert permutation_p([one], [other]) == all_permutations_p(one, other)


def test_p_value_of_many_examples_approximates_all_permutations() -> None:
    one, other = f1_counts(12, 3), f1_counts(12, 9)
    assert permutation_p([one], [other], trials=4000) == pytest.approx(all_permutations_p(one, other), abs=0.03)


def test_p_value_and_interval_agree_with_scipy() -> None:
    generator = np.random.default_rng(5)
    losses = generator.gamma(2, size=200)
    others = losses + generator.normal(0.05, 0.3, 200)
    one, other = (
        Counts(name="nll", rows=np.stack([x, np.ones(200)], 1), formula=mean, signature="nll", better=-1)
        for x in (losses, others)
    )
    ours = compare(one, other, trials=4000)

    def statistic(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.mean(y - x, axis=axis)

    test = scipy.stats.permutation_test(
        (losses, others), statistic, permutation_type="samples", n_resamples=4000, vectorized=True, rng=1
    )
    interval = scipy.stats.bootstrap(
        (losses, others), statistic, paired=True, method="percentile", n_resamples=4000, vectorized=True, rng=1
    ).confidence_interval
    assert ours.p == pytest.approx(test.pvalue, abs=0.03)
    assert (ours.value, ours.low, ours.high) == pytest.approx((test.statistic, *interval), abs=0.005)


def test_seeds_are_averaged_and_widen_the_interval() -> None:
    good, bad, other = accuracy_counts(*[1] * 40), accuracy_counts(*[1, 0] * 20), accuracy_counts(*[1, 1, 1, 0] * 10)
    seeds = [good, bad]
    assert mean_value(seeds) == 75
    drawn = resampled([seeds, [other]], trials=500)
    assert percentiles(drawn[0])[1] == 100  # both draws were of the better seed
    result = difference(seeds, [other], *drawn, trials=500, seed=1)
    assert result.value == 0
    assert result.p == 1
    assert result.verdict == "tie"
    assert permutation_p(seeds, seeds[::-1]) == 1


def test_few_examples_have_no_interval_and_are_a_tie() -> None:
    clear = compare(accuracy_counts(*[1] * 9), accuracy_counts(*[0] * 9))
    assert clear.p == 2 / 2**9
    assert (clear.low, clear.high, clear.verdict) == (None, None, "tie")
    assert compare(accuracy_counts(*[1] * 10), accuracy_counts(*[0] * 10)).verdict == "better"


def test_the_verdict_needs_the_corrected_p_value_and_the_interval() -> None:
    clear = Difference(value=2.0, low=1.0, high=3.0, p=0.01, p_holm=0.05, signature="x")
    assert clear.as_json()["verdict"] == clear.verdict == "better"
    assert replace(clear, value=-2.0, low=-3.0, high=-1.0).verdict == "worse"
    assert replace(clear, p_holm=0.051).verdict == "tie"
    assert replace(clear, low=-0.1).verdict == "tie"


def test_false_positives_of_equal_systems_are_as_rare_as_the_level_says() -> None:
    generator = np.random.default_rng(0)
    verdicts = [
        compare(*(accuracy_counts(*generator.integers(0, 2, 60)) for _ in range(2)), trials=199, seed=n).verdict
        for n in range(100)
    ]
    assert sum(verdict != "tie" for verdict in verdicts) <= 10


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_influence_is_what_the_difference_loses_without_an_example() -> None:
    one, other = f1_counts(7, 1), f1_counts(7, 2)
    without = [np.delete(np.arange(7), n) for n in range(7)]
    brute = [(one.value - other.value) - (one.select(rows).value - other.select(rows).value) for rows in without]
    assert influences([one], [other]) == pytest.approx(brute)


def test_counts_of_other_examples_are_refused() -> None:
    with pytest.raises(UserError, match="same examples"):
        compare(accuracy_counts(1, 0), accuracy_counts(1, 0, 1))
