"""Pairwise utilities for minimum Bayes risk (MBR) decoding: each candidate scored against each other as reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqwright.metrics.ngram_overlap import sentence_bleu
from seqwright.metrics.score import Floats

CHAR_ORDER = 6
"""Maximum character n-gram order of chrF."""
BETA = 2
"""Weight of recall relative to precision in chrF2."""


def pairwise_chrf(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: sentence chrF2 of text i against text j, equal to sacrebleu's, for all pairs at once."""
    # As in sacrebleu, white space is ignored and only orders that both texts have n-grams of are averaged.
    squeezed = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, CHAR_ORDER + 1):
        shared, sizes = _intersections([[t[n : n + order] for n in range(len(t) - order + 1)] for t in squeezed])
        present = (sizes[:, None] > 0) & (sizes[None, :] > 0)
        precision += np.where(present, shared / np.maximum(1, sizes[:, None]), 0)
        recall += np.where(present, shared / np.maximum(1, sizes[None, :]), 0)
        orders += present
    precision, recall = precision / np.maximum(1, orders), recall / np.maximum(1, orders)
    return (1 + BETA**2) * precision * recall / np.where(recall > 0, BETA**2 * precision + recall, 1)


def pairwise_f1(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: word F1 of text i and text j."""
    shared, sizes = _intersections([text.split() for text in texts])
    return 2 * shared / np.maximum(1, sizes[:, None] + sizes[None, :])


def pairwise_bleu(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: unsmoothed sentence BLEU of text i against text j."""
    words = [text.split() for text in texts]
    return np.array([[sentence_bleu(candidate, [reference]) for reference in words] for candidate in words])


UTILITIES: dict[str, Callable[[Sequence[str]], Floats]] = {
    "chrf": pairwise_chrf,
    "f1": pairwise_f1,
    "bleu": pairwise_bleu,
}


def _intersections(bags: list[list[Any]]) -> tuple[Floats, Floats]:
    """(N, N) sizes of the multiset intersections of all pairs of bags, and (N,) bag sizes."""
    columns = {item: n for n, item in enumerate(dict.fromkeys(item for bag in bags for item in bag))}
    counts = np.zeros((len(bags), len(columns)))
    for row, bag in enumerate(bags):
        for item, count in Counter(bag).items():
            counts[row, columns[item]] = count
    shared = np.stack([np.minimum(row, counts).sum(1) for row in counts]) if bags else np.zeros((0, 0))
    return shared, counts.sum(1)
