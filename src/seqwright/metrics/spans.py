"""Sequence labeling metrics: word and sentence accuracy, and conlleval's F1 of spans marked by BIO tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqwright.metrics.counts import PRF, Counts, percentage, prf_formula, prf_row
from seqwright.metrics.score import Floats

Tags = Sequence[str]
Sentences = Sequence[Tags]

SPAN_TAG = re.compile(r"[BIESLU]-.+")
BEGINS, ENDS = "BSU", "ESLU"
"""Prefixes that always begin a span, and those that end one (BIOES: S, E; BILOU: U, L)."""


def are_spans(tags: Sequence[str]) -> bool:
    """Whether a tag set is a span encoding: O with BIO, BIOES or BILOU prefixes."""
    others = [tag for tag in tags if tag != "O"]
    return bool(others) and all(SPAN_TAG.fullmatch(tag) for tag in others)


def spans(tags: Tags) -> set[tuple[int, int, str]]:
    """(start, end, type) of each span, the end exclusive. An I-X that continues no X begins a span (conlleval)."""
    result: set[tuple[int, int, str]] = set()
    start: int | None = None
    previous, kind = "O", ""
    for position, tag in enumerate([*tags, "O"]):  # the sentinel closes a span at the end of the sentence
        prefix, _, tag_kind = tag.partition("-")
        continues = prefix not in (*BEGINS, "O") and start is not None and tag_kind == kind and previous not in ENDS
        if start is not None and not continues:
            result.add((start, position, kind))
            start = None
        if prefix != "O" and not continues:
            start, kind = position, tag_kind
        previous = prefix
    return result


def accuracy(predicted: Sentences, gold: Sentences) -> Counts:
    """Word accuracy, in per cent."""
    rows = [[_matches(output, target), len(target)] for output, target in zip(predicted, gold, strict=True)]
    return Counts(name="accuracy", rows=_rows(rows, 2), formula=percentage, signature="accuracy|of:words")


def unknown_accuracy(predicted: Sentences, gold: Sentences, unknown: Sequence[Sequence[bool]]) -> Counts:
    """Accuracy of out-of-vocabulary words, in per cent; `unknown` marks words absent from the training data."""
    rows = []
    for output, target, is_unknown in zip(predicted, gold, unknown, strict=True):
        rows.append(
            [sum(a == b and oov for a, b, oov in zip(output, target, is_unknown, strict=True)), sum(is_unknown)]
        )
    return Counts(
        name="unknown_accuracy", rows=_rows(rows, 2), formula=percentage, signature="unknown_accuracy|of:words"
    )


def sentence_accuracy(predicted: Sentences, gold: Sentences) -> Counts:
    """Sentences with every tag correct, in per cent."""
    rows = [[list(output) == list(target), 1] for output, target in zip(predicted, gold, strict=True)]
    return Counts(
        name="sentence_accuracy", rows=_rows(rows, 2), formula=percentage, signature="sentence_accuracy|of:sentences"
    )


def span_f1(predicted: Sentences, gold: Sentences) -> list[Counts]:
    """F1, precision and recall of spans, in per cent; a match has the same boundaries and type."""
    rows = []
    for output, target in zip(predicted, gold, strict=True):
        predicted_spans, gold_spans = spans(output), spans(target)
        rows.append([len(predicted_spans & gold_spans), len(predicted_spans), len(gold_spans)])
    kinds: tuple[PRF, ...] = ("f1", "precision", "recall")
    return [
        Counts(name=kind, rows=_rows(rows, 3), formula=prf_formula(kind), signature=f"{kind}|of:spans|conlleval")
        for kind in kinds
    ]


def by_tag(predicted: Sentences, gold: Sentences) -> list[dict[str, Any]]:
    """Classification report by tag, most frequent first: support, predictions, precision, recall and F1."""
    matched: Counter[str] = Counter()
    predictions: Counter[str] = Counter(tag for target in predicted for tag in target)
    support: Counter[str] = Counter(tag for target in gold for tag in target)
    for output, target in zip(predicted, gold, strict=True):
        matched.update(tag for tag, guess in zip(target, output, strict=True) if tag == guess)
    return _table(matched, predictions, support)


def confusions(predicted: Sentences, gold: Sentences, names: Sequence[str]) -> list[list[int]]:
    """Confusion matrix of tags by name: rows are gold tags, columns predicted ones."""
    pairs = Counter(
        (true, guess)
        for output, target in zip(predicted, gold, strict=True)
        for guess, true in zip(output, target, strict=True)
    )
    return [[pairs[true, guess] for guess in names] for true in names]


def by_span(predicted: Sentences, gold: Sentences) -> list[dict[str, Any]]:
    """Classification report by span type."""
    matched: Counter[str] = Counter()
    predictions: Counter[str] = Counter()
    support: Counter[str] = Counter()
    for output, target in zip(predicted, gold, strict=True):
        predicted_spans, gold_spans = spans(output), spans(target)
        for counter, members in (
            (matched, predicted_spans & gold_spans),
            (predictions, predicted_spans),
            (support, gold_spans),
        ):
            counter.update(kind for _, _, kind in members)
    return _table(matched, predictions, support)


def _table(matched: Counter[str], predictions: Counter[str], support: Counter[str]) -> list[dict[str, Any]]:
    ranked = sorted({**support, **predictions}, key=lambda name: (-support[name], name))
    return [prf_row(name, matched[name], predictions[name], support[name]) for name in ranked]


def _matches(output: Tags, target: Tags) -> int:
    return sum(a == b for a, b in zip(output, target, strict=True))


def _rows(rows: Sequence[Sequence[float]], quantities: int) -> Floats:
    return np.array(rows, np.float64).reshape(-1, quantities)
