"""Span decoding and F1 of BIO tags against a brute-force oracle and conlleval's rules."""

from __future__ import annotations

import random

import pytest

from seqwright.metrics.spans import (
    accuracy,
    are_spans,
    by_span,
    by_tag,
    sentence_accuracy,
    span_f1,
    spans,
    unknown_accuracy,
)

# Expected spans by conlleval's rules for the start and end of chunks.
CASES = {
    "": set(),
    "O O": set(),
    "B-x I-x O": {(0, 2, "x")},
    "I-x I-x O B-y": {(0, 2, "x"), (3, 4, "y")},
    "O I-x": {(1, 2, "x")},
    "B-x B-x": {(0, 1, "x"), (1, 2, "x")},
    "B-x I-y I-y": {(0, 1, "x"), (1, 3, "y")},
    "I-x B-x I-x": {(0, 1, "x"), (1, 3, "x")},
    "B-x I-x E-x S-x": {(0, 3, "x"), (3, 4, "x")},
    "S-x I-x": {(0, 1, "x"), (1, 2, "x")},
    "B-a-b I-a-b": {(0, 2, "a-b")},
}


@pytest.mark.parametrize("tags", CASES)
def test_bio_tags_to_spans(tags: str) -> None:
    assert spans(tags.split()) == CASES[tags]


def oracle(tags: list[str]) -> set[tuple[int, int, str]]:
    """Brute force for BIO: every maximal run that starts where a span may and continues with I- of the same type."""

    def inside(position: int, kind: str) -> bool:
        return position < len(tags) and tags[position] == f"I-{kind}"

    result = set()
    for first in range(len(tags)):
        if tags[first] == "O":
            continue
        prefix, kind = tags[first].split("-")
        if prefix == "I" and first > 0 and tags[first - 1] in (f"B-{kind}", f"I-{kind}"):
            continue
        last = first + 1
        while inside(last, kind):
            last += 1
        result.add((first, last, kind))
    return result


def test_spans_and_f1_of_random_tags_equal_the_oracle() -> None:
    generator = random.Random(3)
    draw = lambda: generator.choices(["O", "B-x", "I-x", "B-y", "I-y"], k=generator.randrange(9))  # noqa: E731
    gold = [draw() for _ in range(300)]
    predicted = [[tag if generator.random() < 0.7 else "O" for tag in row] for row in gold]
    matched = sum(len(oracle(a) & oracle(b)) for a, b in zip(predicted, gold, strict=True))
    predicted_count, gold_count = (sum(len(oracle(row)) for row in rows) for rows in (predicted, gold))
    assert all(spans(row) == oracle(row) for row in gold + predicted)
    f1, precision, recall = (counts.value for counts in span_f1(predicted, gold))
    assert precision == pytest.approx(100 * matched / predicted_count)
    assert recall == pytest.approx(100 * matched / gold_count)
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
    kinds = by_span(predicted, gold)
    assert sum(row["recall"] * row["examples"] for row in kinds) == pytest.approx(100 * matched)
    assert sum(row["examples"] for row in kinds) == gold_count
    assert sum(row["answered"] for row in kinds) == predicted_count


def test_word_sentence_and_unknown_accuracy() -> None:
    gold = [["n", "v"], ["n", "d", "n"], []]
    predicted = [["n", "v"], ["n", "n", "v"], []]
    unknown = [[False, True], [False, True, True], []]
    assert accuracy(predicted, gold).value == pytest.approx(60.0)
    assert sentence_accuracy(predicted, gold).value == pytest.approx(200 / 3)
    assert unknown_accuracy(predicted, gold, unknown).value == pytest.approx(100 / 3)
    assert [row["class"] for row in by_tag(predicted, gold)] == ["n", "d", "v"]  # most frequent first, then by name
    table = {row["class"]: row for row in by_tag(predicted, gold)}
    assert (table["n"]["examples"], table["n"]["answered"]) == (3, 3)
    assert table["n"]["precision"] == table["n"]["recall"] == pytest.approx(100 * 2 / 3)
    assert table["d"]["precision"] is None  # never predicted
    assert table["d"]["f1"] == 0.0
    assert table["v"]["f1"] == pytest.approx(100 * 2 / 3)


def test_are_spans_recognizes_bio_and_bioes() -> None:
    assert are_spans(["O", "B-loc", "I-loc"])
    assert are_spans(["B-x", "E-x"])
    assert not are_spans(["O"])
    assert not are_spans(["NOUN", "VERB", "O"])
    assert not are_spans([])
