"""Classification reports: confusion matrix, escaped class names, empty sections."""

from __future__ import annotations

import re

from seqwright.reporting.classification import SHOWN_CLASSES, class_sections, class_tables

DETAILS = {
    "classes": ["<neg>", "pos"],
    "confusion": [[40, 10], [3, 47]],
    "per_class": [
        {"class": "<neg>", "examples": 50, "answered": 43, "precision": 93.0, "recall": 80.0, "f1": 86.0},
        {"class": "pos", "examples": 50, "answered": 57, "precision": 82.5, "recall": 94.0, "f1": None},
    ],
    "reliability": [{"from": 0.5, "to": 0.6, "examples": 100, "confidence": 0.55, "accuracy": 0.6}],
    "mistakes": [{"text": "a <b>", "place": "x, line 1", "label": "pos", "answered": "<neg>", "probability": 0.9}],
}


def test_confusion_matrix_draws_every_count_and_escapes_names() -> None:
    page = class_sections(DETAILS)
    assert re.findall(r'class="cell[^>]*>(\d+)<', page) == ["40", "10", "3", "47"]
    assert "&lt;neg&gt; predicted as pos: 10 of 50" in page
    assert "<neg>" not in page
    assert "a &lt;b&gt;" in page
    assert page.count("–</td>") == 1


def test_confusion_matrix_of_many_classes_keeps_the_frequent() -> None:
    classes = SHOWN_CLASSES + 5
    counts = [[0] * classes for _ in range(classes)]
    for n in range(classes):
        counts[n][n] = n + 1
    names = [f"class {n}" for n in range(classes)]
    page = class_sections({"classes": names, "confusion": counts, "reliability": []})
    assert "5 rarer classes are not shown" in page
    assert page.count("<rect") == SHOWN_CLASSES**2
    assert "class 4 predicted" not in page
    assert "class 5 predicted as class 5: 6 of 6" in page


def test_no_class_sections_without_a_classifier() -> None:
    assert class_sections({}) == ""


def test_an_empty_label_is_shown_as_quotes() -> None:
    details = {**DETAILS, "classes": ["", "pos"], "per_class": [{**DETAILS["per_class"][0], "class": ""}]}  # type: ignore[dict-item]
    assert class_sections(details).count("&#x27;&#x27;") == 3  # a row, a column and the table
    classes, confusions = class_tables(details)
    for table in (classes, confusions):
        assert next(iter(table.columns[0].cells)).plain == "''"  # type: ignore[union-attr]


def test_confusions_are_sorted_by_count() -> None:
    _, confusions = class_tables(DETAILS)
    assert [list(column.cells) for column in confusions.columns][2][0].plain == "10"  # type: ignore[union-attr]
