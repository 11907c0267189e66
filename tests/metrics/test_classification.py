"""Scores of classifiers: scikit-learn's numbers, additive in every part, and the best temperature there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqwright.core.batch import IGNORE
from seqwright.metrics.calibration import BINS, log_softmax, probability_counts, reliability, temperature
from seqwright.metrics.classification import class_counts, confusion, labels_counts, per_class
from seqwright.metrics.correlation import value_counts
from seqwright.metrics.counts import Counts, scores

NAMES = ("sun", "rain", "snow", "fog")


def answers(classes: int, seed: int, many: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """What was said and what was right, in agreement more often than not."""
    generator = np.random.default_rng(seed)
    wanted = generator.integers(0, classes, many)
    return np.where(generator.random(many) < 0.6, wanted, generator.integers(0, classes, many)), wanted


def values(counts: list[Counts]) -> dict[str, float]:
    return {one.name: one.value for one in counts}


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_class_scores_are_those_of_scikit_learn(classes: int, seed: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    answered, wanted = answers(classes, seed)
    found = values(list(class_counts(answered, wanted, NAMES[:classes])))
    assert found["accuracy"] == pytest.approx(100 * oracle.accuracy_score(wanted, answered))
    assert found["matthews"] == pytest.approx(oracle.matthews_corrcoef(wanted, answered))
    for average in ("macro", "weighted"):
        expected = 100 * oracle.f1_score(wanted, answered, average=average)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    if classes == 2:
        assert found["f1"] == pytest.approx(100 * oracle.f1_score(wanted, answered))
    assert (confusion(answered, wanted, classes) == oracle.confusion_matrix(wanted, answered)).all()
    one_hot = np.eye(classes, dtype=bool)
    precision, recall, f1, examples = oracle.precision_recall_fscore_support(wanted, answered)
    for n, row in enumerate(per_class(one_hot[answered], one_hot[wanted], NAMES[:classes])):
        assert row["examples"] == examples[n]
        assert [row["precision"], row["recall"], row["f1"]] == pytest.approx(
            [100 * precision[n], 100 * recall[n], 100 * f1[n]]
        )


@pytest.mark.parametrize("classes", [2, 3])
def test_what_was_not_learned_is_a_class_that_nobody_answers(classes: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    answered, wanted = answers(classes, 5)
    wanted[::9] = classes
    found = values(list(class_counts(answered, np.where(wanted == classes, IGNORE, wanted), NAMES[:classes])))
    assert found["accuracy"] == pytest.approx(100 * oracle.accuracy_score(wanted, answered))
    assert found["matthews"] == pytest.approx(oracle.matthews_corrcoef(wanted, answered))
    for average in ("macro", "weighted"):
        expected = 100 * oracle.f1_score(wanted, answered, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    if classes == 2:
        assert found["f1"] == pytest.approx(100 * oracle.f1_score(wanted == 1, answered == 1))


def test_scores_of_several_labels_are_those_of_scikit_learn() -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    generator = np.random.default_rng(3)
    wanted = generator.random((100, 4)) < 0.3
    answered = wanted ^ (generator.random((100, 4)) < 0.2)
    found = values(list(labels_counts(answered, wanted, NAMES)))
    assert found["accuracy"] == pytest.approx(100 * oracle.accuracy_score(wanted, answered))
    for average in ("micro", "macro", "weighted"):
        assert found[f"{average}_f1"] == pytest.approx(100 * oracle.f1_score(wanted, answered, average=average))


def test_two_labels_have_no_positive_one() -> None:
    wanted = np.array([[True, False], [True, True]])
    assert set(values(list(labels_counts(wanted, wanted, NAMES[:2])))) == {
        "accuracy",
        "micro_f1",
        "macro_f1",
        "weighted_f1",
    }


def test_labels_that_nobody_wants_are_scored_zero() -> None:
    none, one = np.zeros((2, 3), bool), np.eye(2, 3, dtype=bool)
    for answered in (none, one):
        found = values(list(labels_counts(answered, none, NAMES[:3])))
        assert (found["micro_f1"], found["macro_f1"], found["weighted_f1"]) == (0, 0, 0)


def test_a_class_answered_once_and_wrongly_counts() -> None:
    found = values(list(class_counts(np.array([0, 0, 1]), np.array([0, 0, 0]), NAMES[:3])))
    assert found["macro_f1"] == pytest.approx((80 + 0) / 2)  # the third was neither answered nor wanted
    assert found["weighted_f1"] == pytest.approx(80)


def test_what_there_is_nothing_to_divide_by_is_none() -> None:
    sun, rain, _ = np.eye(3, dtype=bool)
    table = per_class(np.stack([sun, sun]), np.stack([sun, rain]), NAMES[:3])
    assert [[row["precision"], row["recall"]] for row in table] == [[50, 100], [None, 0], [None, None]]
    assert [row["f1"] for row in table] == [pytest.approx(200 / 3), 0, None]
    assert [[row["examples"], row["answered"]] for row in table] == [[1, 2], [1, 0], [0, 0]]


def test_scores_of_numbers_are_those_of_scipy() -> None:
    oracle = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn, the oracle")
    generator = np.random.default_rng(4)
    wanted = generator.integers(0, 6, 80).astype(float)  # with ties
    answered = wanted + generator.normal(0, 2, 80)
    found = values(list(value_counts(answered, wanted)))
    assert found["pearson"] == pytest.approx(oracle.pearsonr(answered, wanted).statistic)
    assert found["spearman"] == pytest.approx(oracle.spearmanr(answered, wanted).statistic)
    assert found["mse"] == pytest.approx(((answered - wanted) ** 2).mean())
    assert found["mae"] == pytest.approx(np.abs(answered - wanted).mean())
    some = generator.integers(0, 80, 80)  # as the bootstrap draws them
    resampled = next(value_counts(answered, wanted)).select(some).value
    assert resampled == pytest.approx(oracle.pearsonr(answered[some], wanted[some]).statistic)
    far = values(list(value_counts(answered + 1e9, wanted - 1e9)))
    assert far["pearson"] == pytest.approx(found["pearson"])


def test_errors_are_better_the_smaller_they_are() -> None:
    numbers, logits = np.arange(12.0), np.random.default_rng(0).normal(0, 1, (12, 2))
    sense = {
        one.name: one.better
        for one in (*value_counts(numbers, numbers), *probability_counts(log_softmax(logits), np.ones(12, np.int64)))
    }
    errors = ("mse", "mae", "nll", "brier", "calibration_error")
    assert sense == {"pearson": 1, "spearman": 1} | dict.fromkeys(errors, -1)


def test_probabilities_are_scored_as_scikit_learn_does() -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    logits, wanted = np.random.default_rng(5).normal(0, 2, (300, 3)), answers(3, 5, 300)[1]
    log_probs = log_softmax(logits)
    found = values(list(probability_counts(log_probs, wanted)))
    assert found["nll"] == pytest.approx(oracle.log_loss(wanted, np.exp(log_probs)))
    hot = np.eye(3)[wanted]
    assert found["brier"] == pytest.approx(((np.exp(log_probs) - hot) ** 2).sum(1).mean())


def test_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    logits, wanted = np.random.default_rng(6).normal(0, 2, (500, 3)), answers(3, 6, 500)[1]
    log_probs = log_softmax(logits)
    confidence, right = np.exp(log_probs.max(1)), log_probs.argmax(1) == wanted
    expected = 0.0
    for n in range(BINS):
        inside = (confidence > n / BINS) & (confidence <= (n + 1) / BINS)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    found = values(list(probability_counts(log_probs, wanted)))
    assert found["calibration_error"] == pytest.approx(100 * expected)
    bins = reliability(log_probs, wanted)
    assert sum(row["examples"] for row in bins) == 500
    gaps = sum(row["examples"] * abs(row["confidence"] - row["accuracy"]) for row in bins) / 500
    assert gaps == pytest.approx(expected)


@settings(max_examples=15)
@given(st.floats(0.2, 5.0), st.integers(0, 20))
def test_a_temperature_undoes_what_made_a_model_too_sure(factor: float, seed: int) -> None:
    """Labels drawn from softmax(logits): a model that says factor · logits is mended by T near factor, and no other
    temperature makes the labels more probable."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (4000, 3))
    wanted = (np.exp(log_softmax(logits)).cumsum(1) < generator.random((4000, 1))).sum(1)

    def loss(at: float) -> float:
        return float(-log_softmax(factor * logits / at)[np.arange(4000), wanted].mean())

    found = temperature(factor * logits, wanted)
    assert found == pytest.approx(factor, rel=0.15)
    assert loss(found) <= min(loss(found * 0.99), loss(found * 1.01), loss(1.0))


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_parts_add_up(seed: int) -> None:
    """A score of all examples is the formula of summed parts, whatever the parts."""
    answered, wanted = answers(3, seed)
    log_probs = log_softmax(np.random.default_rng(seed).normal(0, 1, (len(wanted), 3)))
    labels = (np.eye(3, dtype=bool)[numbers] for numbers in (answered, wanted))
    for one in (
        *class_counts(answered, wanted, NAMES[:3]),
        *labels_counts(*labels, NAMES[:3]),
        *probability_counts(log_probs, wanted),
    ):
        parts = one.rows[:70].sum(0) + one.rows[70:].sum(0)
        assert one.formula(parts[None])[0] == pytest.approx(one.value)
        score = scores([one], resamples=200, seed=1)[one.name]
        assert score.low is not None
        assert score.high is not None
        assert score.low <= score.high
        assert one.signature.startswith(f"{one.name}|")


def test_one_class_only_is_no_correlation() -> None:
    always = np.zeros(30, np.int64)
    found = values(list(class_counts(always, always, NAMES[:2])))
    assert found["accuracy"] == 100
    assert found["matthews"] == 0
    assert values(list(value_counts(np.ones(30), np.arange(30.0))))["pearson"] == 0
