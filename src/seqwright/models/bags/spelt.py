"""Words that are spelt out in characters: which stand in a text, and their numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.models.bags.grams import Rows
from seqwright.models.ngrams.tables import ABSENT, search

BASE = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that its powers never vanish."""


def spelt(ids: Rows, marks: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """A key for each word of texts that lie one after another, and how many words each text has.

    A key is the polynomial of a word's ids in BASE, modulo 2⁶⁴: of a million words two share one with probability 1e-7.
    """
    text = np.repeat(np.arange(len(lengths)), lengths)
    inside, begins = np.flatnonzero(marks > 0), np.flatnonzero(marks == 1)
    counts = np.bincount(text[begins], minlength=len(lengths))
    if not len(begins):
        return np.zeros(0, np.int64), counts
    first = np.flatnonzero(marks[inside] == 1)
    place = np.arange(len(inside)) - np.repeat(first, np.diff([*first, len(inside)]))
    powers = np.cumprod(np.full(place.max() + 1, BASE))
    keys = np.add.reduceat(_scattered(ids[inside]) * powers[place], first)
    return keys.view(np.int64), counts


def numbered(keys: Rows, known: Rows) -> Rows:
    """The number of each word among those known; unknown ones share the one behind all."""
    found = search(known, keys)
    return np.where(found == ABSENT, len(known), found)


def _scattered(ids: Rows) -> NDArray[np.uint64]:
    """Each id as 64 bits that look drawn (the finaliser of SplitMix64), so that words of few letters differ in all."""
    keys = (ids.astype(np.uint64) + np.uint64(1)) * BASE
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
