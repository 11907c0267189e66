"""Smoothing: from n-gram counts to probabilities and back-off weights.

Every interpolated kind has one form. Each context h discounts the counts of its continuations and gives the freed mass
to the lower-order distribution of h' (h without its first id), down to the uniform distribution over predictable ids:

    p(w | h) = discounted(h w) / total(h) + weight(h) p(w | h'),    weight(h) = 1 - sum_w discounted(h w) / total(h)

The kinds differ in the counts they use, in the discount, and in the denominator. Only stupid back-off does not
interpolate; it is normalized here, since autoregressive models return log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Ints, Mask, Order
from seqwright.models.ngram.discounts import Floats, discounts_for
from seqwright.models.ngram.meter import UNSEEN, Meter
from seqwright.models.ngram.scratch import Scratch

Kind = Literal["kneser-ney", "add-k", "mle", "witten-bell", "absolute", "stupid-backoff"]

LogProbs = NDArray[np.float32]

STUPID_BACKOFF_ALPHA = 0.4
"""Back-off factor (Brants et al. 2007, section 4)."""


@dataclass(frozen=True)
class Estimate:
    """Probabilities of all n-grams and back-off weights of all contexts, by order and row."""

    counts: list[Ints]
    """The counts that the smoothing uses: raw, or adjusted (Kneser-Ney)."""
    log_prob: list[LogProbs]
    """log p(w | h) of each n-gram h w."""
    back_off: list[LogProbs]
    """Log back-off weight of each n-gram as a context; all orders but the highest."""
    discounts: Floats
    """(N, 4): discounts of counts of 0, 1, 2 and 3 or more, by order."""
    notes: list[str]
    """Messages to the user about the estimate."""


def estimate(
    ngrams: Counts,
    kind: Kind,
    *,
    predictable: Mask,
    eos: int | None,
    k: float,
    fallback: tuple[float, ...],
    kept: list[Mask] | None,
    scratch: Scratch,
    meter: Meter = UNSEEN,
) -> Estimate:
    """Smoothed probabilities and back-off weights; n-grams not in `kept` get the lower-order probability only."""
    orders = ngrams.orders
    counts = adjusted_counts(orders, kind, scratch)
    discounts, notes = discounts_for(ngrams, counts, kind, fallback, eos, scratch)
    estimates = Estimate(counts, [], [], discounts, notes)
    lower_order: Floats = predictable / predictable.sum()  # the uniform distribution, by id
    normalizer: Floats = np.ones(1)  # Z(h) of stupid back-off, by context
    for n, order in enumerate(orders):
        contexts = len(orders[n - 1]) if n else 1
        probability, weight = scratch.empty(len(order), float), scratch.empty(contexts, float)
        normalizers = scratch.empty(contexts if kind == "stupid-backoff" else 0, float)
        for rows, span in _context_blocks(order.key, ngrams.vocabulary, contexts, scratch):
            count = counts[n][rows]
            sums = _ContextSums(order.key[rows] // ngrams.vocabulary - span.start, span.stop - span.start)
            discounted = count - discounts[n][np.minimum(count, 3)]
            if kept is not None:
                discounted *= kept[n][rows]
            total = sums(count)
            if kind == "add-k":
                total += k * predictable.sum()
            elif kind == "witten-bell":
                total += sums(count > 0)  # T(h), the number of distinct continuations
            lower = scratch.take(lower_order, order.suffix[rows])
            if kind == "stupid-backoff":
                suffix = orders[n - 1].suffix[span] if n > 1 else np.zeros(len(total), int)
                shorter = scratch.take(normalizer, suffix)
                probability[rows], weight[span], normalizers[span] = _stupid_backoff(
                    sums, discounted, total, lower, shorter
                )
            else:
                probability[rows], weight[span] = _interpolate(sums, discounted, total, lower)
            meter.advance(rows.stop - rows.start, f"estimating {n + 1}-grams")
        lower_order, normalizer = probability, normalizers
        estimates.log_prob.append(scratch.map(log, probability, dtype=np.float32))
        if n:
            estimates.back_off.append(scratch.map(log, weight, dtype=np.float32))
    return estimates


def adjusted_counts(orders: list[Order], kind: Kind, scratch: Scratch) -> list[Ints]:
    """The counts, by order, that a kind of smoothing uses: raw ones, or continuation counts (Kneser-Ney)."""
    adjusted = [order.count for order in orders]
    for n, (order, above) in enumerate(pairwise(orders)):
        if kind == "kneser-ney":
            # Lower orders count distinct contexts, not occurrences: "Francisco" is frequent, but only after "San"
            # (Kneser & Ney 1995). Nothing precedes <sos>, so n-grams that start with it keep their raw counts.
            contexts = scratch.bincount(above.suffix, above.count, len(order))
            adjusted[n] = scratch.map(np.where, order.starts_with_sos, order.count, contexts, dtype=order.count.dtype)
        elif kind in ("add-k", "mle"):
            # No interpolation: lower orders serve only near the start of a document, where no longer context exists.
            adjusted[n] = scratch.map(np.multiply, order.count, order.starts_with_sos, dtype=order.count.dtype)
    return adjusted


def _context_blocks(key: Ints, vocabulary: int, contexts: int, scratch: Scratch) -> Iterator[tuple[slice, slice]]:
    """Blocks of n-grams that split no context, each with the contexts it covers; together they cover all."""
    rows, span = 0, 0
    for block in scratch.blocks(len(key)):
        if block.stop == len(key):
            yield slice(rows, block.stop), slice(span, contexts)
        else:
            last = int(key[block.stop - 1]) // vocabulary
            end = int(
                np.searchsorted(key, last * vocabulary)
            )  # the last context may continue: leave it to the next block
            yield slice(rows, end), slice(span, last)
            rows, span = end, last


class _ContextSums:
    """Sums over the continuations of each context."""

    def __init__(self, context: Ints, contexts: int):
        self.context = context
        self.contexts = contexts

    def __call__(self, values: NDArray[Any]) -> Floats:
        totals: Floats = np.bincount(self.context, values, self.contexts).astype(float)
        return totals


def _interpolate(sums: _ContextSums, discounted: Floats, total: Floats, lower: Floats) -> tuple[Floats, Floats]:
    """p(w | h) and weight(h) of the interpolated form; a context without continuations has weight 1."""
    divisor = np.where(total > 0, total, 1.0)
    weight = np.where(total > 0, (total - sums(discounted)) / divisor, 1.0)
    return discounted / divisor[sums.context] + weight[sums.context] * lower, weight


def _stupid_backoff(
    sums: _ContextSums, discounted: Floats, total: Floats, lower: Floats, shorter: Floats
) -> tuple[Floats, Floats, Floats]:
    """Stupid back-off's p(w | h), weight(h) and normalizer Z(h), from Z(h') (`shorter`).

    The score S(w | h) is the relative frequency where h w was seen and 0.4 S(w | h') elsewhere (Brants et al. 2007). It
    sums to Z(h) = seen mass + 0.4 (Z(h') - sum of S(w | h') over the w seen after h). p = S / Z keeps the ranking of S.
    """
    divisor = np.where(total > 0, total, 1.0)
    seen = discounted > 0
    normalizer = sums(discounted) / divisor + STUPID_BACKOFF_ALPHA * shorter * (1 - sums(lower * seen))
    weight = STUPID_BACKOFF_ALPHA * shorter / normalizer
    frequency = discounted / (divisor * normalizer)[sums.context]
    return np.where(seen, frequency, weight[sums.context] * lower), weight, normalizer


def log(probability: Floats) -> LogProbs:
    """Natural logarithm in float32, as stored; -inf for probability zero."""
    with np.errstate(divide="ignore"):
        return np.log(probability).astype(np.float32)
