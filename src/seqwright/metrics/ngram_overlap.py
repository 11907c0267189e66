"""N-gram overlap metrics: precision, recall and F1, the lectures' simplified BLEU, and ROUGE."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqwright.metrics.counts import PRF, Counts, percentage, prf_formula
from seqwright.metrics.edit_distance import lcs_length
from seqwright.metrics.score import Floats
from seqwright.metrics.translation import References, check_pairs

Tokens = Sequence[str]
Brevity = Literal["simplified", "standard"]
MAX_ORDER = 4
"""Maximum n-gram order of BLEU."""


@dataclass(frozen=True)
class Overlap:
    """N-grams matched between a candidate and its reference, and the n-grams of each."""

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
    """Counts of the n-grams of one order."""
    return Counter(tuple(tokens[n : n + order]) for n in range(len(tokens) - order + 1))


def overlap(candidate: Tokens, reference: Tokens, order: int = 1) -> Overlap:
    """Overlap of the n-grams of one order; a repeated n-gram matches as often as both have it."""
    candidate_ngrams, reference_ngrams = ngrams(candidate, order), ngrams(reference, order)
    return Overlap((candidate_ngrams & reference_ngrams).total(), candidate_ngrams.total(), reference_ngrams.total())


def clipped_precision(candidate: Tokens, references: Sequence[Tokens], order: int) -> tuple[int, int]:
    """(matches, candidate n-grams): matches are clipped at the maximum count in any single reference."""
    candidate_ngrams = ngrams(candidate, order)
    max_counts: Counter[tuple[str, ...]] = Counter()
    for reference in references:
        max_counts |= ngrams(reference, order)
    return (candidate_ngrams & max_counts).total(), candidate_ngrams.total()


def sentence_bleu(
    candidate: Tokens,
    references: Sequence[Tokens],
    *,
    max_order: int = MAX_ORDER,
    brevity: Brevity = "standard",
) -> float:
    """Unsmoothed sentence BLEU, 0 to 1."""
    precisions = [clipped_precision(candidate, references, order) for order in range(1, max_order + 1)]
    if not all(matches for matches, _ in precisions):  # the geometric mean is 0
        return 0.0
    penalty = brevity_penalty(len(candidate), closest_length(candidate, references), brevity)
    return penalty * math.exp(sum(math.log(matches / total) for matches, total in precisions) / max_order)


def brevity_penalty(candidate: int, reference: int, kind: Brevity = "standard") -> float:
    """BLEU's penalty by lengths c and r, at most 1: "standard" exp(1 - r / c), "simplified" c / r."""
    # Candidates longer than the reference have no penalty: clipped precision already punishes them.
    return min(1.0, candidate / reference if kind == "simplified" else math.exp(1 - reference / candidate))


def word_overlap(outputs: Sequence[str], references: References, kind: PRF) -> Counts:
    """The lectures' corpus word precision, recall or F1, 0 to 100, each output against its best reference by F1."""
    check_pairs(outputs, references)
    rows = []
    for output, output_references in zip(outputs, references, strict=True):
        best = max(
            (overlap(output.split(), reference.split()) for reference in output_references),
            key=lambda candidate: candidate.f1,
        )
        rows.append([best.shared, best.candidate, best.reference])
    name = f"word_{kind}"
    matrix = np.array(rows, np.float64).reshape(-1, 3)
    return Counts(name=name, rows=matrix, formula=prf_formula(kind), signature=f"{name}|tok:white-space")


def simplified_bleu(outputs: Sequence[str], references: References) -> Counts:
    """The lectures' corpus BLEU, 0 to 100: brevity penalty min(1, c / r), no smoothing, split at white space. For
    teaching; report `bleu`."""
    check_pairs(outputs, references)
    rows = []
    for output, output_references in zip(outputs, references, strict=True):
        candidate, reference_tokens = output.split(), [reference.split() for reference in output_references]
        precisions = [clipped_precision(candidate, reference_tokens, order) for order in range(1, MAX_ORDER + 1)]
        rows.append(
            [*(n for pair in precisions for n in pair), len(candidate), closest_length(candidate, reference_tokens)]
        )

    def formula(sums: Floats) -> Floats:
        matches, totals = sums[:, 0 : 2 * MAX_ORDER : 2], sums[:, 1 : 2 * MAX_ORDER : 2]  # (N, orders)
        with np.errstate(divide="ignore"):
            geometric_means = np.exp(
                np.log(matches / np.maximum(totals, 1)).mean(1)
            )  # an order without a match: exp(-inf) = 0
        return 100 * np.minimum(1, sums[:, -2] / np.maximum(sums[:, -1], 1)) * geometric_means

    signature = "simplified_bleu|brevity:c/r|smooth:none|tok:white-space"
    matrix = np.array(rows, np.float64).reshape(-1, 2 * MAX_ORDER + 2)
    return Counts(name="simplified_bleu", rows=matrix, formula=formula, signature=signature)


def closest_length(candidate: Tokens, references: Sequence[Tokens]) -> int:
    """Length of the reference closest in length; the shorter one on a tie."""
    return min((abs(len(reference) - len(candidate)), len(reference)) for reference in references)[1]


def rouge(outputs: Sequence[str], references: References, kind: Literal["1", "2", "L"]) -> Counts:
    """ROUGE-1, -2 or -L (Lin 2004), 0 to 100: mean F1 of lower-cased words, best reference, no stemming."""
    check_pairs(outputs, references)
    words = [_words(output) for output in outputs]
    best = [
        max(_rouge(candidate, _words(reference), kind) for reference in output_references)
        for candidate, output_references in zip(words, references, strict=True)
    ]
    rows = np.array([[f1, 1.0] for f1 in best]).reshape(-1, 2)
    name = f"rouge_{kind.lower()}"
    return Counts(name=name, rows=rows, formula=percentage, signature=f"{name}|f1|case:lc|tok:\\w+|stem:no")


def _rouge(candidate: list[str], reference: list[str], kind: str) -> float:
    """F1 of n-grams, or of the longest common subsequence for ROUGE-L."""
    if kind != "L":
        return overlap(candidate, reference, int(kind)).f1
    return Overlap(lcs_length(candidate, reference), len(candidate), len(reference)).f1


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
