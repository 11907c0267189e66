"""What classifiers answer and what the answers are worth: numbers by hand."""

from __future__ import annotations

from math import log, pi

import numpy as np
import pytest
import torch

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.config import UserError
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.rows import LabeledConfig, Row
from seqwright.data.labeled.sources import encode, frame
from seqwright.tasks.classification.details import FEWEST, calibrated, details, label_errors
from seqwright.tasks.classification.predictor import Member, Predictor
from seqwright.tasks.classification.scores import (
    ClassificationEvaluationConfig,
    ClassificationOptions,
    answers,
    counted,
    tempered,
)
from seqwright.text.trainers import TokenizerConfig, train

ONE = Labels(kind="single", names=("no", "yes"))
SEVERAL = Labels(kind="multi", names=("red", "big"))
VALUE = Labels(kind="regression", mean=10.0, deviation=2.0)

FOUND = np.array([[0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.9, 0.1], [0.45, 0.55], [0.65, 0.35]])
WANTED = np.array([0, 0, IGNORE, 1, 1, 1])
ROWS = [Row(label, (f"text {n}",), f"a.tsv:{n}") for n, label in enumerate(["no", "no", "maybe", "yes", "yes", "yes"])]


def values(found: np.ndarray, targets: np.ndarray, labels: Labels) -> dict[str, float]:
    counts = list(counted(found, targets, labels, ClassificationOptions(), "f" * 64))
    assert all(
        one.better == (-1 if one.name in ("nll", "brier", "calibration_error", "mse", "mae") else 1) for one in counts
    )
    assert all(one.signature.startswith(f"{one.name}|") and "|text:ffffffff|" in one.signature for one in counts)
    return {one.name: one.value for one in counts}


def test_one_class() -> None:
    """What was not learned is a wrong answer and has no likelihood."""
    found = values(FOUND, WANTED, ONE)
    assert found["accuracy"] == pytest.approx(50)
    assert found["nll"] == pytest.approx(-(log(0.8) + log(0.7) + log(0.1) + log(0.55) + log(0.35)) / 5)
    assert found["brier"] == pytest.approx(2 * (0.2**2 + 0.3**2 + 0.9**2 + 0.45**2 + 0.65**2) / 5)


def test_several_labels() -> None:
    found = values(np.array([[0.9, 0.2], [0.4, 0.5]]), np.array([[1, 0], [0, 0]], np.float32), SEVERAL)
    assert found["nll"] == pytest.approx(-(log(0.9) + log(0.8) + log(0.6) + log(0.5)) / 4)
    assert found["accuracy"] == 50  # at the threshold a label is given
    assert found["micro_f1"] == pytest.approx(200 / 3)


def test_values_in_their_own_unit() -> None:
    found = values(np.array([[12.0], [8.0]]), np.array([[0.5], [-1]], np.float32), VALUE)  # 11 and 8 are right
    assert found["nll"] == pytest.approx(pi * 0.5**2 / 2)
    assert (found["mse"], found["mae"]) == (0.5, 0.5)


def test_a_temperature_softens() -> None:
    """softmax(log p / 2) is √p over the sum of roots."""
    assert tempered(FOUND[:1], 2.0)[0] == pytest.approx(np.array([2, 1]) / 3)
    assert tempered(FOUND, None) is FOUND
    options = ClassificationOptions(temperature=2.0)
    assert all("|temperature:2|" in one.signature for one in counted(FOUND, WANTED, ONE, options, "f"))
    assert not any("temperature" in one.signature for one in counted(FOUND, np.ones((6, 2)), SEVERAL, options, "f"))


@pytest.mark.parametrize("options", [{"threshold": 0.0}, {"threshold": 1.0}, {"temperature": 0.0}], ids=str)
def test_options_outside_their_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        ClassificationOptions(**options)


def test_numbers_below_zero_are_refused_and_zero_is_not() -> None:
    ClassificationEvaluationConfig(resamples=0, seed=0)
    for name in ("resamples", "seed"):
        with pytest.raises(UserError, match=f"{name} must not be below 0, but is -1"):
            ClassificationEvaluationConfig(**{name: -1})


class Told(torch.nn.Module):
    """Logits: how often `a` and `b` stand in a row; nothing at all while it learns."""

    def __init__(self, a: int, b: int):
        super().__init__()
        self.ids = a, b

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.source.ids is not None
        return torch.stack([(batch.source.ids == id).sum(1) for id in self.ids], 1) * (0.0 if self.training else 1.0)


def test_a_long_text_is_answered_by_the_mean_of_its_windows() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a b c"])
    a, b = tokenizer.encode("a b")
    texts = [("b",), ("a a b c c c",), ("c",)]
    sources = frame(encode(texts, tokenizer), tokenizer, max_length=3, truncation="windows", add_special_tokens=False)
    windows = [sources.padded(np.array([row])) for row in range(len(sources))]
    assert len(windows) > len(texts)
    counts = np.array([[int((one.ids == id).sum()) for id in (a, b)] for one in windows], float)
    reports: list[tuple[int, int]] = []
    model = Told(a, b)
    for labels, likely in (
        (ONE, np.exp(counts) / np.exp(counts).sum(1, keepdims=True)),
        (SEVERAL, 1 / (1 + np.exp(-counts))),
    ):
        found = answers(model.train(), sources, labels, "cpu", lambda done, of: reports.append((done, of)))
        for text in range(3):
            assert found[text] == pytest.approx(likely[sources.origin == text].mean(0))
        assert reports[-1] == (len(windows), len(windows))
    alone = frame(encode(texts, tokenizer), tokenizer, max_length=None, truncation="head", add_special_tokens=False)
    found = answers(lambda batch: model(batch)[:, :1], alone, VALUE, "cpu")
    assert found[:, 0].tolist() == [10, 14, 10]  # deviations of 2 from the mean of 10


def test_texts_that_did_not_fit_are_counted_and_only_classes_are_tempered() -> None:
    tokenizer = train(TokenizerConfig(kind="words"), ["a b c"])
    model = Told(*tokenizer.encode("a b"))
    model.context = 4  # type: ignore[assignment]
    readers = [Member(model=model, tokenizer=tokenizer, data=LabeledConfig(train="x", add_special_tokens=False))]
    texts = [("a a b c c",), ("b c c c c c c",), ("a",)]
    plain, softer = (Predictor(readers=readers, labels=ONE, temperature=t)(texts) for t in (None, 2.0))
    assert (plain.cut, plain.lost.tolist()) == (2, [1, 3, 0])
    assert softer.found == pytest.approx(tempered(plain.found, 2.0))
    several = [Predictor(readers=readers, labels=SEVERAL, temperature=t)(texts).found for t in (None, 2.0)]
    assert (several[0] == several[1]).all()


def test_details_of_one_class() -> None:
    found = details(FOUND, WANTED, ONE, ROWS, ClassificationOptions())
    assert found["classes"] == ["no", "yes"]
    assert found["confusion"] == [[2, 0], [2, 1]]
    assert [[row["examples"], row["answered"]] for row in found["per_class"]] == [[2, 5], [3, 1]]
    assert [row["recall"] for row in found["per_class"]] == pytest.approx([100, 100 / 3])
    assert sum(row["examples"] for row in found["reliability"]) == 5
    assert [(row["place"], row["answered"]) for row in found["mistakes"]] == [("a.tsv:3", "no"), ("a.tsv:5", "no")]
    assert details(FOUND, WANTED, VALUE, ROWS, ClassificationOptions()) == {}
    likely, true = np.array([[0.9, 0.2], [0.1, 0.3]]), np.array([[1, 0], [0, 1]])
    table = details(likely, true, SEVERAL, ROWS[:2], ClassificationOptions())["per_class"]
    assert [(row["examples"], row["answered"]) for row in table] == [(1, 1), (1, 0)]


def test_suspicious_labels_are_the_least_probable() -> None:
    found = label_errors(FOUND, WANTED, ONE, ROWS, 3)
    assert [(row["place"], row["of_label"]) for row in found] == [
        ("a.tsv:3", 0.1),
        ("a.tsv:5", 0.35),
        ("a.tsv:4", 0.55),
    ]
    assert found[0] == {
        "text": "text 3",
        "place": "a.tsv:3",
        "label": "yes",
        "answered": "no",
        "probability": 0.9,
        "of_label": 0.1,
    }


def test_a_temperature_needs_enough_texts_of_one_class() -> None:
    sure = np.tile([[0.99, 0.01]], (FEWEST + 1, 1))
    wanted = (np.arange(FEWEST + 1) % 5 == 0).astype(np.int64)  # wrong a fifth of the time
    wanted[-1] = IGNORE
    fitted = calibrated(sure, wanted, ONE)
    assert tempered(sure[:1], fitted["temperature"])[0, 0] == pytest.approx(0.8)
    assert fitted["tempered_calibration_error"] == pytest.approx(0, abs=1e-6)
    assert calibrated(sure[1:], wanted[1:], ONE) == {}
    assert calibrated(sure, wanted, SEVERAL) == {}
