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
    interval,
    interval_over_seeds,
    mean_value,
    permutation_p,
    possible,
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


def test_equal_errors_differ_by_zero_without_a_sign() -> None:
    rows = np.ones((40, 2))
    counts = Counts(name="nll", rows=rows, formula=mean, signature="nll", better=-1)
    result = compare(counts, counts)
    assert [str(number) for number in (result.value, result.low, result.high)] == ["0.0", "0.0", "0.0"]


def test_seeds_are_averaged_and_widen_the_interval() -> None:
    good, bad, other = accuracy_counts(*[1] * 40), accuracy_counts(*[1, 0] * 20), accuracy_counts(*[1, 1, 1, 0] * 10)
    seeds = [good, bad]
    assert mean_value(seeds) == 75
    drawn = resampled([seeds, [other]], trials=500)
    assert interval([seeds[:1]], drawn[1]) != interval([seeds], drawn[1])
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


def test_p_value_of_seeds_swaps_all_outputs_of_a_system() -> None:
    systems = [[f1_counts(8, seed) for seed in seeds] for seeds in ((1, 2, 3), (11, 12))]
    means = [replace(system[0], rows=np.mean([counts.rows for counts in system], 0)) for system in systems]
    assert permutation_p(*systems) == all_permutations_p(*means)


def test_interval_of_a_ratio_agrees_with_scipy() -> None:
    one, other = f1_counts(300, 1), f1_counts(300, 2)
    ours = compare(one, other, trials=4000)

    def statistic(chosen: np.ndarray) -> float:
        return one.select(chosen).value - other.select(chosen).value

    theirs = scipy.stats.bootstrap(
        (np.arange(300),), statistic, method="percentile", n_resamples=4000, vectorized=False, rng=1
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.25)


def test_interval_of_few_examples_is_that_of_all_resamples() -> None:
    # Of ten examples with two distinct rows, all resamples are binomial counts of the first.
    rows = [1] * 5 + [0] * 5
    ours = resampled([[accuracy_counts(*rows)]], trials=20_000)
    assert interval([], ours[0]) == (
        10 * scipy.stats.binom.ppf(0.025, 10, 0.5),
        10 * scipy.stats.binom.ppf(0.975, 10, 0.5),
    )


def seeds_with(*accuracies: float) -> list[Counts]:
    """Counts of ten equal examples, so that the only variance is that of the seeds."""
    return [replace(accuracy_counts(*[1] * 10), rows=np.tile([share, 1.0], (10, 1))) for share in accuracies]


def test_interval_of_seeds_is_that_of_welch() -> None:
    shares = (0.7, 0.72, 0.75, 0.71), (0.5, 0.6, 0.58)
    one, other = (seeds_with(*values) for values in shares)
    ours = difference(one, other, *resampled([one, other], trials=40_000), trials=40_000, seed=1)
    theirs = scipy.stats.ttest_ind(*shares, equal_var=False).confidence_interval()
    assert (ours.low, ours.high) == pytest.approx((100 * theirs.low, 100 * theirs.high), abs=0.5)
    alone = scipy.stats.t.interval(0.95, 3, np.mean(shares[0]), scipy.stats.sem(shares[0]))
    assert interval([one], resampled([one], trials=40_000)[0]) == pytest.approx(100 * np.array(alone), abs=0.2)


def test_equal_recipes_whose_seeds_spread_are_seldom_told_apart() -> None:
    generator = np.random.default_rng(0)
    verdicts = []
    for n in range(200):
        one, other = (seeds_with(*generator.normal(0.7, 0.05, 3)) for _ in range(2))
        verdicts.append(difference(one, other, *resampled([one, other], trials=200), trials=200, seed=n).verdict)
    assert sum(verdict != "tie" for verdict in verdicts) <= 16


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02, 0.02, 0.02]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([]) == []


def test_holm_is_the_closed_test_of_bonferroni() -> None:
    """A hypothesis is rejected if every set of hypotheses with it is (Marcus, Peritz & Gabriel 1976)."""
    p_values = np.random.default_rng(4).uniform(0, 0.3, 6)
    adjusted = [
        max(
            min(1.0, len(others) * min(p_values[list(others)]))
            for size in range(1, 7)
            for others in itertools.combinations(range(6), size)
            if n in others
        )
        for n in range(6)
    ]
    assert holm(p_values) == pytest.approx(adjusted)


def test_groups_of_examples_have_the_score_and_fewer_units() -> None:
    frames = f1_counts(12, 1)
    images = frames.grouped(3)
    assert len(images.rows) == 4
    assert images.value == frames.value
    assert images.rows[1] == pytest.approx(frames.rows[3:6].sum(0))


def test_influence_is_what_the_difference_loses_without_an_example() -> None:
    one, other = f1_counts(7, 1), f1_counts(7, 2)
    without = [np.delete(np.arange(7), n) for n in range(7)]
    brute = [(one.value - other.value) - (one.select(rows).value - other.select(rows).value) for rows in without]
    assert influences([one], [other]) == pytest.approx(brute)


def test_counts_of_other_examples_are_refused() -> None:
    with pytest.raises(UserError, match="same examples"):
        compare(accuracy_counts(1, 0), accuracy_counts(1, 0, 1))


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 11, 15, 40])
def test_the_interval_of_a_mean_over_seeds_is_students_t_beside_that_over_examples(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(80, 2, seeds).tolist()
    low, high = interval_over_seeds(values, [None] * seeds) or (0.0, 0.0)
    expected = scipy.stats.t.interval(0.95, seeds - 1, np.mean(values), scipy.stats.sem(values))
    assert (low + high) / 2 == pytest.approx(np.mean(values))
    assert high - low == pytest.approx(expected[1] - expected[0], rel=2e-3)
    with_examples = interval_over_seeds(values, [(value - 3, value + 4) for value in values]) or (0.0, 0.0)
    half = (high - low) / 2
    assert np.mean(values) - with_examples[0] == pytest.approx(np.hypot(3, half))
    assert with_examples[1] - np.mean(values) == pytest.approx(np.hypot(4, half))


def test_one_seed_has_the_interval_over_its_examples_alone() -> None:
    assert interval_over_seeds([80.0], [(77.0, 84.0)]) == (77.0, 84.0)
    assert interval_over_seeds([80.0], [None]) is None


@pytest.mark.parametrize(
    ("metric", "ends"),
    [
        ("sentence_accuracy", (0, 100)),
        ("bracket_precision", (0, 100)),
        ("bleu_moses", (0, 100)),
        ("matthews", (-1, 1)),
        ("word_error_rate", (0, 130)),
        ("psnr_shown", (-9, 130)),
    ],
)
def test_ends_of_intervals_are_values_that_a_score_can_have(metric: str, ends: tuple[float, float]) -> None:
    assert possible(metric, -9, 130) == ends
