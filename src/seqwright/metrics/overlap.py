"""Overlap of n-grams: precision, recall and F1, the lectures' simplified BLEU, and ROUGE."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqwright.metrics.counts import Counts, ratio
from seqwright.metrics.edits import common_subsequence
from seqwright.metrics.translation import References, check_pairs

Tokens = Sequence[str]


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
    orders: int = 4,
    brevity: Literal["simplified", "standard"] = "standard",
) -> float:
    """BLEU of one sentence, 0 to 1, unsmoothed. The lectures' brevity is min(1, c / r), the paper's exp(1 - r / c)."""
    counted = [clipped_precision(candidate, references, order) for order in range(1, orders + 1)]
    if not all(matches for matches, _ in counted):
        return 0.0
    length = len(candidate)
    closest = min((abs(len(reference) - length), len(reference)) for reference in references)[1]
    shortness = closest / length
    penalty = 1 / shortness if brevity == "simplified" else math.exp(1 - shortness)
    return min(1.0, penalty) * math.exp(sum(math.log(matches / total) for matches, total in counted) / orders)


def rouge(outputs: Sequence[str], references: References, kind: Literal["1", "2", "L"]) -> Counts:
    """ROUGE (Lin 2004), 0 to 100: mean F1 of lower-cased words, of the reference that suits each output best."""
    check_pairs(outputs, references)
    words = [_words(output) for output in outputs]
    best = [
        max(_rouge(own, _words(reference), kind) for reference in several)
        for own, several in zip(words, references, strict=True)
    ]
    rows = np.array([[f1, 1.0] for f1 in best]).reshape(-1, 2)
    name = f"rouge_{kind}"
    return Counts(name=name, rows=rows, formula=ratio, signature=f"{name}|f1|case:lc|tok:\\w+|stem:no")


def _rouge(candidate: list[str], reference: list[str], kind: str) -> float:
    if kind != "L":
        return overlap(candidate, reference, int(kind)).f1
    return Overlap(common_subsequence(candidate, reference), len(candidate), len(reference)).f1


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
