"""Words that are spelled out in characters: which stand in a text, and their numbers."""

from __future__ import annotations

import numpy as np

from seqwright.models.bag.features import Rows
from seqwright.models.ngram.tables import ABSENT, search
from seqwright.text.hashing import GOLDEN, mix64


def spelled(ids: Rows, marks: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """A key for each word of texts that lie one after another, and how many words each text has.

    A key is the polynomial of a word's ids in GOLDEN, modulo 2⁶⁴: of a million words two share one with probability
    1e-7.
    """
    text = np.repeat(np.arange(len(lengths)), lengths)
    inside, begins = np.flatnonzero(marks > 0), np.flatnonzero(marks == 1)
    counts = np.bincount(text[begins], minlength=len(lengths))
    if not len(begins):
        return np.zeros(0, np.int64), counts
    first = np.flatnonzero(marks[inside] == 1)
    place = np.arange(len(inside)) - np.repeat(first, np.diff([*first, len(inside)]))
    powers = np.cumprod(np.full(place.max() + 1, GOLDEN))
    letters = mix64((ids[inside].astype(np.uint64) + np.uint64(1)) * GOLDEN)  # so that short words differ in all bits
    keys = np.add.reduceat(letters * powers[place], first)
    return keys.view(np.int64), counts


def numbered(keys: Rows, known: Rows) -> Rows:
    """The number of each word among those known; unknown ones share the one behind all."""
    found = search(known, keys)
    return np.where(found == ABSENT, len(known), found)
