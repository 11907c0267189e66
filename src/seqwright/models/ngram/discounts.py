"""Absolute discounts, estimated from counts of counts (how many n-grams were counted once, twice, …).

Those of modified Kneser-Ney agree with KenLM to the last digit; where KenLM stops with an exception, a fallback and a
note take its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Ints
from seqwright.models.ngram.scratch import Scratch

Floats = NDArray[np.float64]


def discounts_for(
    ngrams: Counts, counts: list[Ints], kind: str, fallback: tuple[float, ...], eos: int | None, scratch: Scratch
) -> tuple[Floats, list[str]]:
    """(N, 4) discounts of counts of 0, 1, 2 and 3 or more, by order, and a note where the fallback is used."""
    discounts, unknown = np.zeros((len(counts), 4)), list[str]()
    if kind not in ("kneser-ney", "absolute"):
        return discounts, []
    counts_of_counts = [_counts_of_counts(c, scratch) for c in counts]
    if kind == "kneser-ney":
        _match_kenlm(counts_of_counts, ngrams, counts, eos, scratch)
    assumed = np.array(fallback if kind == "kneser-ney" else (fallback[0],) * 3)
    for n, of_order in enumerate(counts_of_counts):
        estimated = modified_discounts(of_order) if kind == "kneser-ney" else absolute_discount(of_order)
        if estimated is None:
            unknown.append(f"{n + 1}-grams")
        discounts[n, 1:] = assumed if estimated is None else estimated
    if not unknown:
        return discounts, []
    return discounts, [
        f"The discounts of {', '.join(unknown)} cannot be estimated from their counts of counts (small or very regular"
        f" data); falling back to {assumed[0]:g}, {assumed[1]:g} and {assumed[2]:g} for counts of 1, 2 and 3 or more"
        " (model.discount_fallback)."
    ]


def modified_discounts(n: Floats) -> Floats | None:
    """D1, D2 and D3+ of modified Kneser-Ney from counts of counts n (Chen & Goodman 1998, equation 26); None if one is
    undefined or out of range."""
    if not n[1:4].all():
        return None
    count = np.arange(1, 4)
    y = n[1] / (n[1] + 2 * n[2])
    discounts: Floats = count - (count + 1) * y * n[2:5] / n[1:4]
    return None if (discounts < 0).any() or (discounts > count).any() else discounts


def absolute_discount(n: Floats) -> Floats | None:
    """n1 / (n1 + 2 n2), the same for every count (Ney, Essen & Kneser 1994); None if n1 or n2 is 0."""
    return np.full(3, n[1] / (n[1] + 2 * n[2])) if n[1:3].all() else None


def _counts_of_counts(counts: Ints, scratch: Scratch) -> Floats:
    """(6,): number of n-grams with a count of 0, 1, 2, 3, 4, and 5 or more."""
    result = np.zeros(6)
    for block in scratch.blocks(len(counts)):
        result += np.bincount(np.minimum(counts[block], 5), minlength=6)
    return result


def _match_kenlm(
    counts_of_counts: list[Floats], ngrams: Counts, counts: list[Ints], eos: int | None, scratch: Scratch
) -> None:
    """Reproduces a quirk of KenLM: one n-gram of each lower order is tallied by its occurrences.

    lmplz sorts n-grams by suffix (last id, then the one before, …), ids numbered by first occurrence, and tallies
    the last n-gram of each lower order with its raw count in place of the adjusted one. The last digit of D3+ depends
    on it (docs/ngrams.md).
    """
    rank = ngrams.first_position.copy()
    if eos is not None:
        rank[eos] = -1  # </s> precedes all words in KenLM's vocabulary
    last = int(rank.argmax())
    for n, order in enumerate(ngrams.orders[:-1]):
        if n:
            matches = [
                block.start + np.flatnonzero(order.suffix[block] == last) for block in scratch.blocks(len(order))
            ]
            longer = np.concatenate(matches)
            if not len(longer):  # nothing precedes <sos>
                return
            last = int(longer[rank[ngrams.first_ids(n, longer)].argmax()])
        counts_of_counts[n][min(counts[n][last], 5)] -= 1
        counts_of_counts[n][min(order.count[last], 5)] += 1
