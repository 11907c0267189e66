"""Tags against tags: accuracy of words and sentences, F1 of the spans that BIO tags mark, as conlleval counts them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqwright.metrics.counts import Agreement, Counts, agreement, rates, ratio
from seqwright.metrics.score import Floats

Tags = Sequence[str]
Sentences = Sequence[Tags]

MARKED = re.compile(r"[BIESLU]-.+")
OPENS, CLOSES = "BSU", "ESLU"
"""First letters of tags that always begin a span, and of those that end one (BIOES and BILOU have both)."""


def are_spans(tags: Sequence[str]) -> bool:
    """Whether a set of tags marks spans: O, and B-X or I-X with or without the letters of BIOES."""
    others = [tag for tag in tags if tag != "O"]
    return bool(others) and all(MARKED.fullmatch(tag) for tag in others)


def spans(tags: Tags) -> set[tuple[int, int, str]]:
    """(first, past the last, type) of each span. An I-X that follows no X begins one, as in conlleval."""
    found: set[tuple[int, int, str]] = set()
    begun: int | None = None
    before, kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, _, own = tag.partition("-")
        goes_on = letter not in (*OPENS, "O") and begun is not None and own == kind and before not in CLOSES
        if begun is not None and not goes_on:
            found.add((begun, place, kind))
            begun = None
        if letter != "O" and not goes_on:
            begun, kind = place, own
        before = letter
    return found


def accuracy(predicted: Sentences, gold: Sentences) -> Counts:
    """Words, in per cent, that have their tag."""
    rows = [[_agree(mine, right), len(right)] for mine, right in zip(predicted, gold, strict=True)]
    return Counts(name="accuracy", rows=_rows(rows, 2), formula=ratio, signature="accuracy|of:words")


def unknown_accuracy(predicted: Sentences, gold: Sentences, unknown: Sequence[Sequence[bool]]) -> Counts:
    """The same among words that the training data does not have."""
    rows = []
    for mine, right, strange in zip(predicted, gold, unknown, strict=True):
        rows.append([sum(a == b and odd for a, b, odd in zip(mine, right, strange, strict=True)), sum(strange)])
    return Counts(name="unknown_accuracy", rows=_rows(rows, 2), formula=ratio, signature="unknown_accuracy|of:words")


def sentence_accuracy(predicted: Sentences, gold: Sentences) -> Counts:
    """Sentences, in per cent, in which every word has its tag."""
    rows = [[list(mine) == list(right), 1] for mine, right in zip(predicted, gold, strict=True)]
    return Counts(
        name="sentence_accuracy", rows=_rows(rows, 2), formula=ratio, signature="sentence_accuracy|of:sentences"
    )


def span_f1(predicted: Sentences, gold: Sentences) -> list[Counts]:
    """F1, precision and recall of spans, in per cent: right ones have the right ends and the right type."""
    rows = []
    for mine, right in zip(predicted, gold, strict=True):
        said, wanted = spans(mine), spans(right)
        rows.append([len(said & wanted), len(said), len(wanted)])
    kinds: tuple[Agreement, ...] = ("f1", "precision", "recall")
    return [
        Counts(name=kind, rows=_rows(rows, 3), formula=agreement(kind), signature=f"{kind}|of:spans|conlleval")
        for kind in kinds
    ]


def by_tag(predicted: Sentences, gold: Sentences) -> list[dict[str, Any]]:
    """For each tag, the commonest first: its words, how often it was answered, precision, recall and F1 in per cent."""
    right: Counter[str] = Counter()
    said: Counter[str] = Counter(tag for row in predicted for tag in row)
    wanted: Counter[str] = Counter(tag for row in gold for tag in row)
    for mine, row in zip(predicted, gold, strict=True):
        right.update(tag for tag, own in zip(row, mine, strict=True) if tag == own)
    return _table(right, said, wanted)


def by_span(predicted: Sentences, gold: Sentences) -> list[dict[str, Any]]:
    """The same for each type of span."""
    right: Counter[str] = Counter()
    said: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for mine, row in zip(predicted, gold, strict=True):
        found, there = spans(mine), spans(row)
        for counter, some in ((right, found & there), (said, found), (wanted, there)):
            counter.update(kind for _, _, kind in some)
    return _table(right, said, wanted)


def _table(right: Counter[str], said: Counter[str], wanted: Counter[str]) -> list[dict[str, Any]]:
    ranked = sorted({**wanted, **said}, key=lambda name: (-wanted[name], name))
    return [rates(name, right[name], said[name], wanted[name]) for name in ranked]


def _agree(mine: Tags, right: Tags) -> int:
    return sum(a == b for a, b in zip(mine, right, strict=True))


def _rows(rows: Sequence[Sequence[float]], quantities: int) -> Floats:
    return np.array(rows, np.float64).reshape(-1, quantities)
