"""Utilities: how well each of several texts would do if another were right; what minimum Bayes risk averages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqwright.metrics.ngram_overlap import sentence_bleu
from seqwright.metrics.score import Floats

CHARACTERS = 6
"""The longest character n-grams of chrF."""
BETA = 2
"""How much more recall counts than precision in chrF2."""


def pairwise_chrf(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: sentence chrF2 of text i against text j, the number sacrebleu gives, for all pairs at once."""
    squeezed = ["".join(text.split()) for text in texts]
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, CHARACTERS + 1):
        shared, sizes = _shared([[t[n : n + order] for n in range(len(t) - order + 1)] for t in squeezed])
        both = (sizes[:, None] > 0) & (sizes[None, :] > 0)
        precision += np.where(both, shared / np.maximum(1, sizes[:, None]), 0)
        recall += np.where(both, shared / np.maximum(1, sizes[None, :]), 0)
        orders += both
    precision, recall = precision / np.maximum(1, orders), recall / np.maximum(1, orders)
    return (1 + BETA**2) * precision * recall / np.where(recall > 0, BETA**2 * precision + recall, 1)


def pairwise_f1(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: F1 of the words of text i and text j."""
    shared, sizes = _shared([text.split() for text in texts])
    return 2 * shared / np.maximum(1, sizes[:, None] + sizes[None, :])


def pairwise_bleu(texts: Sequence[str]) -> Floats:
    """(N, N), 0 to 1: unsmoothed sentence BLEU of text i against text j."""
    words = [text.split() for text in texts]
    return np.array([[sentence_bleu(own, [other]) for other in words] for own in words])


UTILITIES: dict[str, Callable[[Sequence[str]], Floats]] = {
    "chrf": pairwise_chrf,
    "f1": pairwise_f1,
    "bleu": pairwise_bleu,
}


def _shared(bags: list[list[Any]]) -> tuple[Floats, Floats]:
    """(N, N) items that two bags share, as often as both have them, and the sizes (N,) of the bags."""
    numbers = {item: n for n, item in enumerate(dict.fromkeys(item for bag in bags for item in bag))}
    counts = np.zeros((len(bags), len(numbers)))
    for row, bag in enumerate(bags):
        for item, times in Counter(bag).items():
            counts[row, numbers[item]] = times
    shared = np.stack([np.minimum(row, counts).sum(1) for row in counts]) if bags else np.zeros((0, 0))
    return shared, counts.sum(1)
