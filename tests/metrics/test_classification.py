"""Classification, regression and calibration metrics against scikit-learn and scipy; temperature scaling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqwright.core.batch import IGNORE
from seqwright.metrics.calibration import (
    BINS,
    calibration_counts,
    fit_temperature,
    log_softmax,
    probability_counts,
    reliability,
)
from seqwright.metrics.classification import class_counts, confusion_matrix, multilabel_counts, per_class
from seqwright.metrics.correlation import regression_counts
from seqwright.metrics.counts import Counts, scores

NAMES = ("sun", "rain", "snow", "fog")


def predictions(classes: int, seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Random predictions and targets that agree more often than not."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, classes, count)
    return np.where(generator.random(count) < 0.6, targets, generator.integers(0, classes, count)), targets


def values(counts: list[Counts]) -> dict[str, float]:
    return {metric.name: metric.value for metric in counts}


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_single_label_metrics_equal_scikit_learn(classes: int, seed: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    predicted, targets = predictions(classes, seed)
    scored = values(list(class_counts(predicted, targets, NAMES[:classes])))
    assert scored["accuracy"] == pytest.approx(100 * oracle.accuracy_score(targets, predicted))
    assert scored["matthews"] == pytest.approx(oracle.matthews_corrcoef(targets, predicted))
    for average in ("macro", "weighted"):
        expected = 100 * oracle.f1_score(targets, predicted, average=average)
        assert scored[f"{average}_f1"] == pytest.approx(expected)
    if classes == 2:
        assert scored["f1"] == pytest.approx(100 * oracle.f1_score(targets, predicted))
    assert (confusion_matrix(predicted, targets, classes) == oracle.confusion_matrix(targets, predicted)).all()
    one_hot = np.eye(classes, dtype=bool)
    precision, recall, f1, examples = oracle.precision_recall_fscore_support(targets, predicted)
    for n, row in enumerate(per_class(one_hot[predicted], one_hot[targets], NAMES[:classes])):
        assert row["examples"] == examples[n]
        assert [row["precision"], row["recall"], row["f1"]] == pytest.approx(
            [100 * precision[n], 100 * recall[n], 100 * f1[n]]
        )


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_absent_from_training_are_a_class_never_predicted(classes: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    predicted, targets = predictions(classes, 5)
    targets[::9] = classes
    scored = values(list(class_counts(predicted, np.where(targets == classes, IGNORE, targets), NAMES[:classes])))
    assert scored["accuracy"] == pytest.approx(100 * oracle.accuracy_score(targets, predicted))
    assert scored["matthews"] == pytest.approx(oracle.matthews_corrcoef(targets, predicted))
    for average in ("macro", "weighted"):
        expected = 100 * oracle.f1_score(targets, predicted, average=average, zero_division=0)
        assert scored[f"{average}_f1"] == pytest.approx(expected)
    if classes == 2:
        assert scored["f1"] == pytest.approx(100 * oracle.f1_score(targets == 1, predicted == 1))


@pytest.mark.parametrize("unseen", [1, 2, 5])
def test_macro_f1_is_over_every_label_that_training_did_not_have(unseen: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    predicted, targets = predictions(3, 5)
    targets[::9] = 3 + np.arange(len(targets[::9])) % unseen
    known = np.where(targets > 2, IGNORE, targets)
    counts = {one.name: one for one in class_counts(predicted, known, NAMES[:3], unseen=unseen)}
    for average in ("macro", "weighted"):
        expected = 100 * oracle.f1_score(targets, predicted, average=average, zero_division=0)
        assert counts[f"{average}_f1"].value == pytest.approx(expected)
    assert f"|classes:{3 + unseen}" in counts["macro_f1"].signature


@pytest.mark.parametrize("right", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_macro_f1_lies_in_its_interval_however_rare_classes_are(right: float, seed: int) -> None:
    """Resamples that draw no text of a rare class are over the same classes."""
    generator = np.random.default_rng(seed)
    targets = np.concatenate([np.zeros(200, np.int64), np.arange(1, 21)])
    predicted = np.where(generator.random(len(targets)) < right, targets, 0)
    names = [str(n) for n in range(21)]
    score = scores(class_counts(predicted, targets, names), resamples=300, seed=1)["macro_f1"]
    assert score.low is not None
    assert score.high is not None
    assert score.low <= score.value <= score.high
    assert score.high < score.value + 15


def test_multilabel_metrics_equal_scikit_learn() -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    generator = np.random.default_rng(3)
    targets = generator.random((100, 4)) < 0.3
    predicted = targets ^ (generator.random((100, 4)) < 0.2)
    scored = values(list(multilabel_counts(predicted, targets, NAMES)))
    assert scored["accuracy"] == pytest.approx(100 * oracle.accuracy_score(targets, predicted))
    for average in ("micro", "macro", "weighted"):
        assert scored[f"{average}_f1"] == pytest.approx(100 * oracle.f1_score(targets, predicted, average=average))


def test_multilabel_metrics_with_unseen_labels_equal_scikit_learn() -> None:
    """The last two labels are absent from training: never predicted, and given as a column of their number."""
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    generator = np.random.default_rng(3)
    targets = generator.random((100, 6)) < 0.3
    predicted = targets[:, :4] ^ (generator.random((100, 4)) < 0.2)
    counted = np.column_stack([targets[:, :4], targets[:, 4:].sum(1)]).astype(float)
    scored = values(list(multilabel_counts(predicted, counted, NAMES[:4], unseen=2)))
    predicted = np.pad(predicted, [(0, 0), (0, 2)])
    assert scored["accuracy"] == pytest.approx(100 * oracle.accuracy_score(targets, predicted))
    for average in ("micro", "macro", "weighted"):
        expected = oracle.f1_score(targets, predicted, average=average, zero_division=0)
        assert scored[f"{average}_f1"] == pytest.approx(100 * expected)


def test_multilabel_has_no_binary_f1() -> None:
    targets = np.array([[True, False], [True, True]])
    assert set(values(list(multilabel_counts(targets, targets, NAMES[:2])))) == {
        "accuracy",
        "micro_f1",
        "macro_f1",
        "weighted_f1",
    }


def test_multilabel_f1_without_targets_is_zero() -> None:
    none, one = np.zeros((2, 3), bool), np.eye(2, 3, dtype=bool)
    for predicted in (none, one):
        scored = values(list(multilabel_counts(predicted, none, NAMES[:3])))
        assert (scored["micro_f1"], scored["macro_f1"], scored["weighted_f1"]) == (0, 0, 0)


def test_macro_f1_counts_a_class_that_is_only_predicted() -> None:
    scored = values(list(class_counts(np.array([0, 0, 1]), np.array([0, 0, 0]), NAMES[:3])))
    assert scored["macro_f1"] == pytest.approx((80 + 0) / 2)  # the third class is neither predicted nor a target
    assert scored["weighted_f1"] == pytest.approx(80)


def test_per_class_report_is_none_for_zero_denominators() -> None:
    sun, rain, _ = np.eye(3, dtype=bool)
    table = per_class(np.stack([sun, sun]), np.stack([sun, rain]), NAMES[:3])
    assert [[row["precision"], row["recall"]] for row in table] == [[50, 100], [None, 0], [None, None]]
    assert [row["f1"] for row in table] == [pytest.approx(200 / 3), 0, None]
    assert [[row["examples"], row["answered"]] for row in table] == [[1, 2], [1, 0], [0, 0]]


def test_regression_metrics_equal_scipy() -> None:
    oracle = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn, the oracle")
    generator = np.random.default_rng(4)
    targets = generator.integers(0, 6, 80).astype(float)  # with ties
    predicted = targets + generator.normal(0, 2, 80)
    scored = values(list(regression_counts(predicted, targets)))
    assert scored["pearson"] == pytest.approx(oracle.pearsonr(predicted, targets).statistic)
    assert scored["spearman"] == pytest.approx(oracle.spearmanr(predicted, targets).statistic)
    assert scored["mse"] == pytest.approx(((predicted - targets) ** 2).mean())
    assert scored["mae"] == pytest.approx(np.abs(predicted - targets).mean())
    sample = generator.integers(0, 80, 80)  # a bootstrap resample
    resampled = next(regression_counts(predicted, targets)).select(sample).value
    assert resampled == pytest.approx(oracle.pearsonr(predicted[sample], targets[sample]).statistic)
    shifted = values(list(regression_counts(predicted + 1e9, targets - 1e9)))
    assert shifted["pearson"] == pytest.approx(scored["pearson"])


def test_lower_is_better_for_errors() -> None:
    numbers, logits = np.arange(12.0), np.random.default_rng(0).normal(0, 1, (12, 2))
    direction = {
        metric.name: metric.better
        for metric in (
            *regression_counts(numbers, numbers),
            *probability_counts(log_softmax(logits), np.ones(12, np.int64)),
        )
    }
    errors = ("mse", "mae", "nll", "brier", "calibration_error")
    assert direction == {"pearson": 1, "spearman": 1} | dict.fromkeys(errors, -1)


def test_log_loss_and_brier_score_equal_scikit_learn() -> None:
    oracle = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    logits, targets = np.random.default_rng(5).normal(0, 2, (300, 3)), predictions(3, 5, 300)[1]
    log_probs = log_softmax(logits)
    scored = values(list(probability_counts(log_probs, targets)))
    assert scored["nll"] == pytest.approx(oracle.log_loss(targets, np.exp(log_probs)))
    one_hot = np.eye(3)[targets]
    assert scored["brier"] == pytest.approx(((np.exp(log_probs) - one_hot) ** 2).sum(1).mean())


def test_expected_calibration_error_and_reliability_bins() -> None:
    logits, targets = np.random.default_rng(6).normal(0, 2, (500, 3)), predictions(3, 6, 500)[1]
    log_probs = log_softmax(logits)
    confidence, correct = np.exp(log_probs.max(1)), log_probs.argmax(1) == targets
    expected = 0.0
    for n in range(BINS):
        inside = (confidence > n / BINS) & (confidence <= (n + 1) / BINS)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    scored = values(list(probability_counts(log_probs, targets)))
    assert scored["calibration_error"] == pytest.approx(expected)
    bins = reliability(log_probs, targets)
    assert sum(row["examples"] for row in bins) == 500
    gaps = sum(row["examples"] * abs(row["confidence"] - row["accuracy"]) for row in bins) / 500
    assert gaps == pytest.approx(expected)


@settings(max_examples=15)
@given(st.floats(0.2, 5.0), st.integers(0, 20))
def test_fit_temperature_undoes_overconfidence(factor: float, seed: int) -> None:
    """Labels are drawn from softmax(logits): a model with logits · factor gets T near factor, and no neighboring
    temperature has a lower nll."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (4000, 3))
    targets = (np.exp(log_softmax(logits)).cumsum(1) < generator.random((4000, 1))).sum(1)

    def loss(at: float) -> float:
        return float(-log_softmax(factor * logits / at)[np.arange(4000), targets].mean())

    fitted = fit_temperature(factor * logits, targets)
    assert fitted == pytest.approx(factor, rel=0.15)
    assert loss(fitted) <= min(loss(fitted * 0.99), loss(fitted * 1.01), loss(1.0))


@pytest.mark.parametrize("seed", range(3))
def test_classification_counts_add_up(seed: int) -> None:
    """The corpus score is the formula of the summed parts."""
    predicted, targets = predictions(3, seed)
    log_probs = log_softmax(np.random.default_rng(seed).normal(0, 1, (len(targets), 3)))
    labels = (np.eye(3, dtype=bool)[ids] for ids in (predicted, targets))
    for metric in (
        *class_counts(predicted, targets, NAMES[:3]),
        *multilabel_counts(*labels, NAMES[:3]),
        *probability_counts(log_probs, targets),
    ):
        parts = metric.rows[:70].sum(0) + metric.rows[70:].sum(0)
        assert metric.formula(parts[None])[0] == pytest.approx(metric.value)
        score = scores([metric], resamples=200, seed=1)[metric.name]
        assert score.low is not None
        assert score.high is not None
        assert score.low <= score.high
        assert metric.signature.startswith(f"{metric.name}|")


def test_correlation_with_a_single_class_or_constant_is_zero() -> None:
    always = np.zeros(30, np.int64)
    scored = values(list(class_counts(always, always, NAMES[:2])))
    assert scored["accuracy"] == 100
    assert scored["matthews"] == 0
    assert values(list(regression_counts(np.ones(30), np.arange(30.0))))["pearson"] == 0


def test_the_interval_of_the_calibration_error_holds_it() -> None:
    """Resampled errors lie above that of calibrated probabilities, whose percentiles would not hold it."""
    probabilities = np.full((300, 2), 0.5) + np.linspace(0.01, 0.45, 300)[:, None] * [1, -1]
    targets = (np.arange(300) * 0.618 % 1 > probabilities[:, 0]).astype(np.int64)
    counts = calibration_counts(np.log(probabilities), targets)
    plain, score = (scores([c], resamples=200, seed=1)[c.name] for c in (replace(counts, biased=False), counts))
    assert plain.low is not None
    assert plain.low > plain.value
    assert score.low is not None
    assert score.high is not None
    assert 0 <= score.low <= score.value <= score.high
