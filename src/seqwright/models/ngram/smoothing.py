"""Smoothing: from counts to probabilities that leave room for what was never seen.

Every kind fits one form. A context h keeps a share for each id seen after it and passes the rest on to the next
shorter context h', down to the uniform distribution over what can be predicted:

    p(w | h) = kept(h w) / room(h) + weight(h) p(w | h'),    weight(h) = 1 - sum over w of kept(h w) / room(h)

The kinds differ in the counts they read, in what they keep of one, and in the room they make. Only stupid back-off does
not interpolate; it is normalized here, for log-probabilities are what crosses the seam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Mask, Order, Rows
from seqwright.models.ngram.discounts import Floats, discounts_for
from seqwright.models.ngram.scratch import Scratch

Kind = Literal["kneser-ney", "add-k", "mle", "witten-bell", "absolute", "stupid-backoff"]

STUPID_WEIGHT = 0.4
"""Brants et al. 2007, section 4."""


@dataclass(frozen=True)
class Estimate:
    """Probabilities of all n-grams and weights of all contexts, by order and row."""

    counts: list[Rows]
    """The counts that the kind reads."""
    probability: list[Floats]
    """p(last id | the ids before it)."""
    weight: list[Floats]
    """Of each order but the last: what the n-gram, as a context, passes on to the next shorter one."""
    discounts: Floats
    """(N, 4): what is taken from an n-gram counted 0, 1, 2, or 3 and more times."""
    notes: list[str]
    """What the user should know about the estimate."""


def estimate(
    counted: Counts,
    kind: Kind,
    *,
    predictable: Mask,
    eos: int | None,
    k: float,
    fallback: tuple[float, ...],
    kept: list[Mask] | None,
    scratch: Scratch,
) -> Estimate:
    """Smoothed probabilities; n-grams that are not `kept` get what their context passes on."""
    orders = counted.orders
    counts = counts_read(orders, kind, scratch)
    discounts, notes = discounts_for(counted, counts, kind, fallback, eos, scratch)
    found = Estimate(counts, [], [], discounts, notes)
    below: Floats = predictable / predictable.sum()  # the uniform distribution, by id
    normalizer: Floats = np.ones(1)  # of stupid back-off, by context
    for n, order in enumerate(orders):
        contexts = len(orders[n - 1]) if n else 1
        probability, weight, normalizers = (scratch.empty(size, float) for size in (len(order), contexts, contexts))
        for rows, span in _by_context(order.key, counted.vocabulary, contexts, scratch):
            count = counts[n][rows]
            sums = _Sums(order.key[rows] // counted.vocabulary - span.start, span.stop - span.start)
            keep = count - discounts[n][np.minimum(count, 3)]
            if kept is not None:
                keep *= kept[n][rows]
            room = sums(count)
            if kind == "add-k":
                room += k * predictable.sum()
            elif kind == "witten-bell":
                room += sums(count > 0)
            passed = scratch.take(below, order.suffix[rows])
            if kind == "stupid-backoff":
                suffix = orders[n - 1].suffix[span] if n > 1 else np.zeros(len(room), int)
                shorter = scratch.take(normalizer, suffix)
                probability[rows], weight[span], normalizers[span] = _backed_off(sums, keep, room, passed, shorter)
            else:
                probability[rows], weight[span] = _interpolated(sums, keep, room, passed)
        below, normalizer = probability, normalizers
        found.probability.append(probability)
        if n:
            found.weight.append(weight)
    return found


def counts_read(orders: list[Order], kind: Kind, scratch: Scratch) -> list[Rows]:
    """The counts, order by order, that a kind of smoothing reads."""
    read = [order.count for order in orders]
    for n, (order, above) in enumerate(pairwise(orders)):
        if kind == "kneser-ney":
            # Lower orders count distinct contexts, not occurrences: "Francisco" is frequent, but only after "San"
            # (Kneser & Ney 1995). Nothing stands before <sos>, so what begins with it keeps its occurrences.
            contexts = scratch.tally(above.suffix, above.count, len(order))
            read[n] = scratch.map(np.where, order.first, order.count, contexts, dtype=np.int64)
        elif kind in ("add-k", "mle"):
            # One order answers; a lower one only where the document began too recently for more.
            read[n] = scratch.map(np.multiply, order.count, order.first, dtype=np.int64)
    return read


def _by_context(key: Rows, vocabulary: int, contexts: int, scratch: Scratch) -> Iterator[tuple[slice, slice]]:
    """Blocks of n-grams that leave no context divided, each with the contexts it covers; together they cover all."""
    rows, span = 0, 0
    for block in scratch.blocks(len(key)):
        if block.stop == len(key):
            yield slice(rows, block.stop), slice(span, contexts)
        else:
            last = int(key[block.stop - 1]) // vocabulary
            end = int(np.searchsorted(key, last * vocabulary))  # the context that goes on waits for the next block
            yield slice(rows, end), slice(span, last)
            rows, span = end, last


class _Sums:
    """Sums over the n-grams that continue each context."""

    def __init__(self, context: Rows, contexts: int):
        self.context = context
        self.contexts = contexts

    def __call__(self, values: NDArray[Any]) -> Floats:
        totals: Floats = np.bincount(self.context, values, self.contexts).astype(float)
        return totals


def _interpolated(sums: _Sums, keep: Floats, room: Floats, passed: Floats) -> tuple[Floats, Floats]:
    """p(w | h) and weight(h) of the form above; a context that was never continued passes everything on."""
    divisor = np.where(room > 0, room, 1.0)
    weight = np.where(room > 0, (room - sums(keep)) / divisor, 1.0)
    return keep / divisor[sums.context] + weight[sums.context] * passed, weight


def _backed_off(
    sums: _Sums, keep: Floats, room: Floats, passed: Floats, shorter: Floats
) -> tuple[Floats, Floats, Floats]:
    """Stupid back-off's p(w | h), weight(h) and normalizer Z(h), given Z(h').

    Its score S(w | h) is the relative frequency where h w was seen and 0.4 S(w | h') elsewhere, which sums to
    Z(h) = share seen + 0.4 (Z(h') - sum of S(w | h') over the w seen after h). Here p = S / Z, ranked as S is.
    """
    divisor = np.where(room > 0, room, 1.0)
    seen = keep > 0
    normalizer = sums(keep) / divisor + STUPID_WEIGHT * shorter * (1 - sums(passed * seen))
    weight = STUPID_WEIGHT * shorter / normalizer
    frequency = keep / (divisor * normalizer)[sums.context]
    return np.where(seen, frequency, weight[sums.context] * passed), weight, normalizer
