"""Contributions of n-grams to the logits of a bag: value times weight, which sum with the bias to the logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from seqwright.models.bag.features import Ints


@dataclass(frozen=True)
class Contributions:
    """The n-grams of one text and what each adds to the logits."""

    spans: Ints
    """(n, 2): start and end of the first occurrence of each n-gram in the ids of the text."""
    of_words: NDArray[np.bool_]
    """(n,): which are n-grams of words beside those of characters."""
    logits: Tensor
    """(n, C), float64"""
    bias: Tensor
    """(C,), float64"""


def word_spans(first: Ints, end: Ints, word_marks: Ints) -> Ints:
    """(n, 2): spans of characters, from spans of words; marks are those of `word_hashes`."""
    inside = np.append(word_marks, 0) == 2
    starts = np.flatnonzero(word_marks == 1)
    ends = np.flatnonzero((word_marks > 0) & ~inside[1:]) + 1  # a word ends where the next character is not inside it
    return np.stack([starts[first], ends[end - 1]], 1)
