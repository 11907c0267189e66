"""Words of character-tokenized text: hashes of the words in each text, and their ids in a vocabulary."""

from __future__ import annotations

import numpy as np

from seqwright.models.bag.features import Ints
from seqwright.models.ngram.tables import ABSENT, binary_search
from seqwright.text.hashing import GOLDEN, mix64


def word_hashes(ids: Ints, word_marks: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """A 64-bit hash of each word of concatenated texts, and the number of words in each text.

    `word_marks` are 1 at the first character of a word, 2 inside it, 0 between words. The hash is a polynomial of the
    word's ids in GOLDEN, modulo 2⁶⁴: a million words collide with probability 1e-7 (docs/decisions/0132).
    """
    text = np.repeat(np.arange(len(lengths)), lengths)
    inside, starts = np.flatnonzero(word_marks > 0), np.flatnonzero(word_marks == 1)
    counts = np.bincount(text[starts], minlength=len(lengths))
    if not len(starts):
        return np.zeros(0, np.int64), counts
    first = np.flatnonzero(word_marks[inside] == 1)
    position = np.arange(len(inside)) - np.repeat(first, np.diff([*first, len(inside)]))
    powers = np.cumprod(np.full(position.max() + 1, GOLDEN))
    letters = mix64((ids[inside].astype(np.uint64) + np.uint64(1)) * GOLDEN)  # so that short words differ in all bits
    hashes = np.add.reduceat(letters * powers[position], first)
    return hashes.view(np.int64), counts


def word_ids(hashes: Ints, vocabulary: Ints) -> Ints:
    """The index of each hash in the sorted vocabulary; unknown words share the id after the last."""
    index = binary_search(vocabulary, hashes)
    return np.where(index == ABSENT, len(vocabulary), index)
