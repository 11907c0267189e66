"""Spans and their scores against an oracle that looks at every stretch of words."""

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

# What conlleval makes of each: the last published edition's start and end of chunks.
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
def test_spans(tags: str) -> None:
    assert spans(tags.split()) == CASES[tags]


def oracle(tags: list[str]) -> set[tuple[int, int, str]]:
    """Every stretch that begins where a span may, goes on inside one type, and cannot be longer."""

    def inside(place: int, kind: str) -> bool:
        return place < len(tags) and tags[place] == f"I-{kind}"

    found = set()
    for first in range(len(tags)):
        if tags[first] == "O":
            continue
        letter, kind = tags[first].split("-")
        if letter == "I" and first > 0 and tags[first - 1] in (f"B-{kind}", f"I-{kind}"):
            continue
        last = first + 1
        while inside(last, kind):
            last += 1
        found.add((first, last, kind))
    return found


def test_spans_and_f1_of_random_tags_are_the_oracle_s() -> None:
    chosen = random.Random(3)
    draw = lambda: chosen.choices(["O", "B-x", "I-x", "B-y", "I-y"], k=chosen.randrange(9))  # noqa: E731
    gold = [draw() for _ in range(300)]
    said = [[tag if chosen.random() < 0.7 else "O" for tag in row] for row in gold]
    right = sum(len(oracle(a) & oracle(b)) for a, b in zip(said, gold, strict=True))
    found, there = (sum(len(oracle(row)) for row in rows) for rows in (said, gold))
    assert all(spans(row) == oracle(row) for row in gold + said)
    f1, precision, recall = (counts.value for counts in span_f1(said, gold))
    assert precision == pytest.approx(100 * right / found)
    assert recall == pytest.approx(100 * right / there)
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
    kinds = by_span(said, gold)
    assert sum(row["recall"] * row["examples"] for row in kinds) == pytest.approx(100 * right)
    assert sum(row["examples"] for row in kinds) == there
    assert sum(row["answered"] for row in kinds) == found


def test_accuracies() -> None:
    gold = [["n", "v"], ["n", "d", "n"], []]
    said = [["n", "v"], ["n", "n", "v"], []]
    unknown = [[False, True], [False, True, True], []]
    assert accuracy(said, gold).value == pytest.approx(60.0)
    assert sentence_accuracy(said, gold).value == pytest.approx(200 / 3)
    assert unknown_accuracy(said, gold, unknown).value == pytest.approx(100 / 3)
    assert [row["class"] for row in by_tag(said, gold)] == ["n", "d", "v"]  # the commonest first, then by name
    table = {row["class"]: row for row in by_tag(said, gold)}
    assert (table["n"]["examples"], table["n"]["answered"]) == (3, 3)
    assert table["n"]["precision"] == table["n"]["recall"] == pytest.approx(100 * 2 / 3)
    assert table["d"]["precision"] is None  # it was never said
    assert table["d"]["f1"] == 0.0
    assert table["v"]["f1"] == pytest.approx(100 * 2 / 3)


def test_which_tags_mark_spans() -> None:
    assert are_spans(["O", "B-loc", "I-loc"])
    assert are_spans(["B-x", "E-x"])
    assert not are_spans(["O"])
    assert not are_spans(["NOUN", "VERB", "O"])
    assert not are_spans([])
