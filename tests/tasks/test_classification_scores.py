"""Predictions of classifiers and their scores, against numbers computed by hand."""

from __future__ import annotations

from math import log, pi

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.core.progress import Progress
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.row import Row
from seqwright.data.labeled.rows import LabeledConfig
from seqwright.data.labeled.sources import encode, frame
from seqwright.tasks.classification.details import MIN_CALIBRATION, calibration, details, label_errors
from seqwright.tasks.classification.predictor import Member, Predictor, predict
from seqwright.tasks.classification.scores import (
    ClassificationEvaluationConfig,
    ClassificationOptions,
    ClassificationScores,
    classification_counts,
    scale_temperature,
)
from seqwright.text.trainers import TokenizerConfig, train

SINGLE = Labels(kind="single", names=("no", "yes"))
MULTI = Labels(kind="multi", names=("red", "big"))
REGRESSION = Labels(kind="regression", mean=10.0, deviation=2.0)

PROBABILITIES = np.array([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.45, 0.55], [0.65, 0.35]])
TARGETS = np.array([0, 0, IGNORE, 1, 1, 1])
ROWS = [Row(label, (f"text {n}",), f"a.tsv:{n}") for n, label in enumerate(["no", "no", "maybe", "yes", "yes", "yes"])]


def values(outputs: np.ndarray, targets: np.ndarray, labels: Labels) -> dict[str, float]:
    counts = list(classification_counts(outputs, targets, labels, ClassificationOptions(), "f" * 64))
    assert all(
        one.better == (-1 if one.name in ("nll", "brier", "calibration_error", "mse", "mae") else 1) for one in counts
    )
    assert all(one.signature.startswith(f"{one.name}|") and "|text:ffffffff|" in one.signature for one in counts)
    return {one.name: one.value for one in counts}


def test_single_label_scores() -> None:
    """A text with an unknown class is an error, and has no likelihood."""
    scores = values(PROBABILITIES, TARGETS, SINGLE)
    assert scores["accuracy"] == pytest.approx(50)
    assert scores["nll"] == pytest.approx(-(log(0.8) + log(0.7) + log(0.1) + log(0.55) + log(0.35)) / 5)
    assert scores["brier"] == pytest.approx(2 * (0.2**2 + 0.3**2 + 0.9**2 + 0.45**2 + 0.65**2) / 5)


def test_multi_label_scores() -> None:
    scores = values(np.array([[0.9, 0.2], [0.4, 0.5]]), np.array([[1, 0], [0, 0]], np.float32), MULTI)
    assert scores["nll"] == pytest.approx(-(log(0.9) + log(0.8) + log(0.6) + log(0.5)) / 4)
    assert scores["accuracy"] == 50  # a label is predicted from the threshold on
    assert scores["micro_f1"] == pytest.approx(200 / 3)


def test_unseen_labels_of_multi_label_texts_are_false_negatives() -> None:
    """The second text has only labels that training did not have, and no prediction."""
    outputs, targets = np.array([[0.9, 0.2], [0.4, 0.1]]), np.array([[1, 0, 0], [0, 0, 2]], np.float32)
    scores = values(outputs, targets, MULTI)
    assert (scores["accuracy"], scores["micro_f1"]) == (50, 50)  # 1 true positive, 2 false negatives
    assert scores["nll"] == pytest.approx(-(log(0.9) + log(0.8) + log(0.6) + log(0.9)) / 4)  # of known labels
    table = details(outputs, targets, MULTI, ROWS[:2], ClassificationOptions())["per_class"]
    assert [row["examples"] for row in table] == [1, 0]


def test_regression_scores_are_in_the_unit_of_the_labels() -> None:
    scores = values(np.array([[12.0], [8.0]]), np.array([[0.5], [-1]], np.float32), REGRESSION)  # 11 and 8 are true
    assert scores["nll"] == pytest.approx(pi * 0.5**2 / 2)
    assert (scores["mse"], scores["mae"]) == (0.5, 0.5)


def test_temperature_scaling() -> None:
    """softmax(log p / 2) is √p over the sum of roots."""
    assert scale_temperature(PROBABILITIES[:1], 2.0)[0] == pytest.approx(np.array([2, 1]) / 3)
    assert scale_temperature(PROBABILITIES, None) is PROBABILITIES
    options = ClassificationOptions(temperature=2.0)
    single = classification_counts(PROBABILITIES, TARGETS, SINGLE, options, "f")
    assert all("|temperature:2|" in one.signature for one in single)
    multi = classification_counts(PROBABILITIES, np.ones((6, 2)), MULTI, options, "f")
    assert not any("temperature" in one.signature for one in multi)


@pytest.mark.parametrize("options", [{"threshold": 0.0}, {"threshold": 1.0}, {"temperature": 0.0}], ids=str)
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        ClassificationOptions(**options)


def test_negative_evaluation_options_are_refused() -> None:
    ClassificationEvaluationConfig(resamples=0, seed=0)
    for name in ("resamples", "seed"):
        with pytest.raises(UserError, match=f"{name} must not be below 0, but is -1"):
            ClassificationEvaluationConfig(**{name: -1})


class TokenCounts(torch.nn.Module):
    """Logits are the counts of some ids in a row, in evaluation mode; zero in training mode."""

    context = 4

    def __init__(self, *ids: int):
        super().__init__()
        self.ids = ids

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.source.ids is not None
        return torch.stack([(batch.source.ids == id).sum(1) for id in self.ids], 1) * (0.0 if self.training else 1.0)


class Calls(Progress):
    """Records how far the work is."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def advance(self, done: int, total: int) -> None:
        self.calls.append((done, total))


def test_the_prediction_for_a_long_text_is_the_mean_over_its_windows() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a b c"])
    a, b = tokenizer.encode("a b")
    texts = [("b",), ("a a b c c c",), ("c",)]
    sources = frame(encode(texts, tokenizer), tokenizer, max_length=3, truncation="windows", add_special_tokens=False)
    windows = [sources.padded(np.array([row])) for row in range(len(sources))]
    assert len(windows) > len(texts)
    counts = np.array([[int((one.ids == id).sum()) for id in (a, b)] for one in windows], float)
    model = TokenCounts(a, b)
    for labels, expected in (
        (SINGLE, np.exp(counts) / np.exp(counts).sum(1, keepdims=True)),
        (MULTI, 1 / (1 + np.exp(-counts))),
    ):
        progress = Calls()
        outputs = predict(model.train(), sources, labels, device="cpu", progress=progress)
        for text in range(3):
            assert outputs[text] == pytest.approx(expected[sources.origin == text].mean(0))
        done, total = progress.calls[-1]
        assert done == total == len(progress.calls)
    alone = frame(encode(texts, tokenizer), tokenizer, max_length=None, truncation="head", add_special_tokens=False)
    outputs = predict(TokenCounts(a), alone, REGRESSION, device="cpu")
    assert outputs[:, 0].tolist() == [10, 14, 10]  # standard deviations of 2 from the mean of 10


def test_truncated_texts_are_counted() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a b c"])
    model = TokenCounts(*tokenizer.encode("a b"))
    member = Member(model=model, tokenizer=tokenizer, data=LabeledConfig(train="x", add_special_tokens=False))
    predictor = Predictor(members=[member], labels=SINGLE)
    predictions = predictor(predictor.encode([("a a b c c",), ("b c c c c c c",), ("a",)]))
    assert (predictions.truncated, predictions.lost.tolist()) == (2, [1, 3, 0])


def test_details_of_single_label_predictions() -> None:
    tables = details(PROBABILITIES, TARGETS, SINGLE, ROWS, ClassificationOptions())
    assert tables["classes"] == ["no", "yes"]
    assert tables["confusion"] == [[2, 0], [2, 1]]
    assert [[row["examples"], row["answered"]] for row in tables["per_class"]] == [[2, 5], [3, 1]]
    assert [row["recall"] for row in tables["per_class"]] == pytest.approx([100, 100 / 3])
    assert sum(row["examples"] for row in tables["reliability"]) == 5
    assert [(row["place"], row["answered"]) for row in tables["mistakes"]] == [("a.tsv:3", "no"), ("a.tsv:5", "no")]
    assert details(PROBABILITIES, TARGETS, REGRESSION, ROWS, ClassificationOptions()) == {}
    outputs, targets = np.array([[0.9, 0.2], [0.1, 0.3]]), np.array([[1, 0], [0, 1]])
    table = details(outputs, targets, MULTI, ROWS[:2], ClassificationOptions())["per_class"]
    assert [(row["examples"], row["answered"]) for row in table] == [(1, 1), (1, 0)]


def test_label_errors_are_classified_otherwise_the_least_probable_label_first() -> None:
    errors = label_errors(PROBABILITIES, TARGETS, SINGLE, ROWS, 3)
    assert [(row["place"], row["of_label"]) for row in errors] == [
        ("a.tsv:3", 0.1),
        ("a.tsv:5", 0.35),
    ]
    assert errors[0] == {
        "text": "text 3",
        "place": "a.tsv:3",
        "label": "yes",
        "answered": "no",
        "probability": 0.9,
        "of_label": 0.1,
    }


def test_calibration_needs_enough_texts_with_a_single_label() -> None:
    confident = np.tile([[0.99, 0.01]], (MIN_CALIBRATION + 1, 1))
    targets = (np.arange(MIN_CALIBRATION + 1) % 5 == 0).astype(np.int64)  # wrong a fifth of the time
    targets[-1] = IGNORE
    fitted = calibration(confident, targets, SINGLE)
    assert scale_temperature(confident[:1], fitted["temperature"])[0, 0] == pytest.approx(0.8)
    assert fitted["tempered_calibration_error"] == pytest.approx(0, abs=1e-6)
    assert calibration(confident[1:], targets[1:], SINGLE) == {}
    assert calibration(confident, targets, MULTI) == {}


def test_scores_are_a_mapping_and_print_their_warnings() -> None:
    table = {"accuracy": 50.0, "scores": {"accuracy": {"value": 50.0, "signature": "accuracy|text:f"}}}
    table |= {"details": {}, "texts": 8, "cut": 2, "unlearned_labels": {"maybe": 3}}
    scores = ClassificationScores(table, truncation="head")
    assert scores["accuracy"] == 50.0
    assert dict(scores) == scores.as_json() == table
    _, signature, unknown, truncated = scores.printed("0123456789abcdef")
    assert signature == "text:f|model:01234567"
    assert unknown == "labels not seen in training, counted as wrong: maybe (3). NLL is over the other labels."
    single = ClassificationScores(table | {"brier": 0.5}, truncation="head")
    assert "NLL, Brier score and calibration error leave these texts out." in [*single.printed("0" * 16)][2]
    assert truncated == '2 of 8 texts (25.0%) were truncated; data.truncation = "head".'
    assert scores.with_precision("fp32")["scores"]["accuracy"]["signature"] == "accuracy|text:f"
    assert scores.with_precision("bf16")["scores"]["accuracy"]["signature"] == "accuracy|text:f|precision:bf16"
