"""Overlap of n-grams: precision, recall and F1, the lectures' simplified BLEU, and ROUGE."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqwright.metrics.counts import Agreement, Counts, agreement, ratio
from seqwright.metrics.edit_distance import common_subsequence
from seqwright.metrics.score import Floats
from seqwright.metrics.translation import References, check_pairs

Tokens = Sequence[str]
ORDERS = 4
"""BLEU looks at n-grams of up to so many words."""


@dataclass(frozen=True)
class Overlap:
    """How many n-grams a candidate shares with its reference, and how many both have."""

    shared: int
    candidate: int
    reference: int

    @property
    def precision(self) -> float:
        return self.shared / self.candidate if self.candidate else 0.0

    @property
    def recall(self) -> float:
        return self.shared / self.reference if self.reference else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.shared / (self.candidate + self.reference) if self.shared else 0.0


def ngrams(tokens: Tokens, order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[n : n + order]) for n in range(len(tokens) - order + 1))


def overlap(candidate: Tokens, reference: Tokens, order: int = 1) -> Overlap:
    """An n-gram is shared as often as both have it."""
    own, other = ngrams(candidate, order), ngrams(reference, order)
    return Overlap((own & other).total(), own.total(), other.total())


def clipped_precision(candidate: Tokens, references: Sequence[Tokens], order: int) -> tuple[int, int]:
    """(matches, n-grams of the candidate): an n-gram counts as often as the reference that has it most."""
    own = ngrams(candidate, order)
    most: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        most |= ngrams(reference, order)
    return (own & most).total(), own.total()


def sentence_bleu(
    candidate: Tokens,
    references: Sequence[Tokens],
    *,
    orders: int = ORDERS,
    brevity: Literal["simplified", "standard"] = "standard",
) -> float:
    """BLEU of one sentence, 0 to 1, unsmoothed. The lectures' brevity is min(1, c / r), the paper's exp(1 - r / c)."""
    counted = [clipped_precision(candidate, references, order) for order in range(1, orders + 1)]
    if not all(matches for matches, _ in counted):
        return 0.0
    length = len(candidate)
    shortness = closest_length(candidate, references) / length
    penalty = 1 / shortness if brevity == "simplified" else math.exp(1 - shortness)
    return min(1.0, penalty) * math.exp(sum(math.log(matches / total) for matches, total in counted) / orders)


def word_overlap(outputs: Sequence[str], references: References, kind: Agreement) -> Counts:
    """The lectures' precision, recall or F1 of words over all outputs, 0 to 100, each against the nearest reference."""
    check_pairs(outputs, references)
    rows = []
    for output, several in zip(outputs, references, strict=True):
        best = max((overlap(output.split(), reference.split()) for reference in several), key=lambda found: found.f1)
        rows.append([best.shared, best.candidate, best.reference])
    name = f"word_{kind}"
    rows_of_all = np.array(rows, np.float64).reshape(-1, 3)
    return Counts(name=name, rows=rows_of_all, formula=agreement(kind), signature=f"{name}|tok:white-space")


def simplified_bleu(outputs: Sequence[str], references: References) -> Counts:
    """The lectures' BLEU over all outputs, 0 to 100: brevity min(1, c / r) and no smoothing, words as white space parts
    them. For teaching; `bleu` is the one to report."""
    check_pairs(outputs, references)
    rows = []
    for output, several in zip(outputs, references, strict=True):
        candidate, split = output.split(), [reference.split() for reference in several]
        counted = [clipped_precision(candidate, split, order) for order in range(1, ORDERS + 1)]
        rows.append([*(n for pair in counted for n in pair), len(candidate), closest_length(candidate, split)])

    def formula(sums: Floats) -> Floats:
        matches, totals = sums[:, 0 : 2 * ORDERS : 2], sums[:, 1 : 2 * ORDERS : 2]  # (N, orders)
        with np.errstate(divide="ignore"):
            means = np.exp(np.log(matches / np.maximum(totals, 1)).mean(1))  # no match of some order: exp(-inf) = 0
        return 100 * np.minimum(1, sums[:, -2] / np.maximum(sums[:, -1], 1)) * means

    signature = "simplified_bleu|brevity:c/r|smooth:none|tok:white-space"
    rows_of_all = np.array(rows, np.float64).reshape(-1, 2 * ORDERS + 2)
    return Counts(name="simplified_bleu", rows=rows_of_all, formula=formula, signature=signature)


def closest_length(candidate: Tokens, references: Sequence[Tokens]) -> int:
    """Of the reference nearest in length, the shorter of two that are as near."""
    return min((abs(len(reference) - len(candidate)), len(reference)) for reference in references)[1]


def rouge(outputs: Sequence[str], references: References, kind: Literal["1", "2", "L"]) -> Counts:
    """ROUGE (Lin 2004), 0 to 100: mean F1 of lower-cased words, of the reference that suits each output best."""
    check_pairs(outputs, references)
    words = [_words(output) for output in outputs]
    best = [
        max(_rouge(own, _words(reference), kind) for reference in several)
        for own, several in zip(words, references, strict=True)
    ]
    rows = np.array([[f1, 1.0] for f1 in best]).reshape(-1, 2)
    name = f"rouge_{kind.lower()}"
    return Counts(name=name, rows=rows, formula=ratio, signature=f"{name}|f1|case:lc|tok:\\w+|stem:no")


def _rouge(candidate: list[str], reference: list[str], kind: str) -> float:
    if kind != "L":
        return overlap(candidate, reference, int(kind)).f1
    return Overlap(common_subsequence(candidate, reference), len(candidate), len(reference)).f1


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
