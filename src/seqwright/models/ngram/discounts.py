"""Discounts: how much of a count to give away, estimated from how many n-grams were counted once, twice, ….

Kneser-Ney's follow KenLM to the last digit, with a sentence and a fallback where KenLM stops with an exception.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Rows
from seqwright.models.ngram.scratch import Scratch

Floats = NDArray[np.float64]


def discounts_for(
    counted: Counts, counts: list[Rows], kind: str, fallback: tuple[float, ...], eos: int | None, scratch: Scratch
) -> tuple[Floats, list[str]]:
    """(N, 4) discounts of counts of 0, 1, 2, and 3 and more, by order, and a sentence where the fallback stands in."""
    discounts, notes = np.zeros((len(counts), 4)), list[str]()
    if kind not in ("kneser-ney", "absolute"):
        return discounts, notes
    tallies = [_counts_of_counts(c, scratch) for c in counts]
    if kind == "kneser-ney":
        _close_as_kenlm(tallies, counted, counts, eos, scratch)
    for n, tally in enumerate(tallies):
        estimated = modified_discounts(tally) if kind == "kneser-ney" else absolute_discount(tally)
        if estimated is None:
            estimated = np.array(fallback if kind == "kneser-ney" else (fallback[0],) * 3)
            notes.append(
                f"The discounts of {n + 1}-grams cannot be estimated from these counts (small or very regular data), "
                f"so {estimated[0]:g}, {estimated[1]:g} and {estimated[2]:g} are taken from those counted once, twice "
                "and more often."
            )
        discounts[n, 1:] = estimated
    return discounts, notes


def modified_discounts(tally: Floats) -> Floats | None:
    """D1, D2, D3+ (Chen & Goodman 1998, equation 26), given the counts of counts; None if they fail."""
    if not tally[1:4].all():
        return None
    times = np.arange(1, 4)
    y = tally[1] / (tally[1] + 2 * tally[2])
    amounts: Floats = times - (times + 1) * y * tally[2:5] / tally[1:4]
    return None if (amounts < 0).any() or (amounts > times).any() else amounts


def absolute_discount(tally: Floats) -> Floats | None:
    """n1 / (n1 + 2 n2), the same for every count (Ney, Essen & Kneser 1994); None if n1 or n2 is 0."""
    return np.full(3, tally[1] / (tally[1] + 2 * tally[2])) if tally[1:3].all() else None


def _counts_of_counts(counts: Rows, scratch: Scratch) -> Floats:
    """(6,): how many n-grams were counted 0, 1, 2, 3, 4, and 5 and more times."""
    tally = np.zeros(6)
    for block in scratch.blocks(len(counts)):
        tally += np.bincount(np.minimum(counts[block], 5), minlength=6)
    return tally


def _close_as_kenlm(
    tallies: list[Floats], counted: Counts, counts: list[Rows], eos: int | None, scratch: Scratch
) -> None:
    """Moves one n-gram of each lower order, the one that KenLM sorts last, to where KenLM tallies it.

    lmplz sorts n-grams by their last id, then by the one before, …, ids numbered as they appear in the text, and closes
    each order with the occurrences of its last n-gram in place of the adjusted count.
    """
    rank = counted.appearance.copy()
    if eos is not None:
        rank[eos] = -1  # KenLM numbers </s> before all words
    last = int(rank.argmax())
    for n, order in enumerate(counted.orders[:-1]):
        if n:
            matches = [
                block.start + np.flatnonzero(order.suffix[block] == last) for block in scratch.blocks(len(order))
            ]
            longer = np.concatenate(matches)
            if not len(longer):  # it began with <sos>
                return
            last = int(longer[rank[counted.head(n, longer)].argmax()])
        tallies[n][min(counts[n][last], 5)] -= 1
        tallies[n][min(order.count[last], 5)] += 1
