"""Pruning: count cut-offs before estimation, relative-entropy pruning after it.

Either way the prefix of a kept n-gram is kept, for keys are built on the row of the prefix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Ints, Mask
from seqwright.models.ngram.smoothing import log
from seqwright.models.ngram.tables import Level, Tables

Floats = NDArray[np.float64]


def apply_cutoffs(counts: Counts, cutoffs: tuple[int, ...]) -> list[Mask]:
    """Masks, by order, of the n-grams that occur more often than their cut-off or are a prefix of one that does."""
    kept: list[Mask] = []
    for n in reversed(range(len(counts.orders))):
        cutoff = cutoffs[min(n, len(cutoffs) - 1)]
        mask = counts.orders[n].count > cutoff if cutoff else np.ones(len(counts.orders[n]), bool)
        if kept:
            mask[counts.orders[n + 1].key[kept[0]] // counts.vocabulary] = True
        kept.insert(0, mask)
    return kept


def prune(tables: Tables, threshold: float, *, eos: int | None) -> Tables:
    """The tables without n-grams whose removal raises perplexity by less than a relative threshold (Stolcke 1998).

    Every n-gram is judged against the unpruned model; then the back-off weights are recomputed.
    """
    kept: list[Mask] = []
    for n in reversed(range(tables.order)):
        mask = np.ones(len(tables.levels[n].key), bool) if n == 0 else _perplexity_increase(tables, n, eos) >= threshold
        if kept:
            mask[tables.levels[n + 1].key[kept[0]] // tables.vocabulary] = True
        kept.insert(0, mask)
    return _renormalize(tables.subset(kept))


def _perplexity_increase(tables: Tables, n: int, eos: int | None) -> Floats:
    """Relative increase of perplexity if each n-gram of length n + 1 alone were removed: exp(KL divergence) - 1."""
    level, context = tables.levels[n], tables.levels[n].key // tables.vocabulary
    words = tables.ngram_ids(n, np.arange(len(level.key)))  # (R, n + 1)
    full, lower = np.exp(level.log_prob.astype(float)), np.exp(_lower_order_log_prob(tables, words))
    contexts = len(tables.levels[n - 1].key)
    # Numerator and denominator of the back-off weight: the mass of unseen continuations, here and one order below.
    unseen = 1 - np.bincount(context, full, contexts)[context]
    unseen_lower = 1 - np.bincount(context, lower, contexts)[context]
    weight = tables.levels[n - 1].back_off
    assert weight is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        without = np.log(unseen + full) - np.log(unseen_lower + lower)  # log back-off weight without the n-gram
        removed = full * (np.log(lower) + without - np.log(full))
        backed_off = np.where(unseen > 0, unseen * (without - weight[context]), 0)
        divergence = -np.exp(_context_log_prob(tables, words[:, :-1], eos)) * (removed + backed_off)
    return np.where(full > 0, np.expm1(divergence), 0)


def _lower_order_log_prob(tables: Tables, words: Ints) -> Floats:
    """log p(w | h') of n-grams h w, h' being h without its first id."""
    contexts = tables.empty_contexts(len(words))
    for column in words[:, 1:-1].T:
        contexts = tables.advance(column[:, None], contexts)[..., 0]
    return tables.log_prob(contexts, words[:, -1]).astype(float)


def _context_log_prob(tables: Tables, words: Ints, eos: int | None) -> Floats:
    """Marginal log p(h) of contexts. <sos> is never predicted and takes the probability of <eos>: there are as many."""
    total, contexts = np.zeros(len(words)), tables.empty_contexts(len(words))
    for n, column in enumerate(words.T):
        log_prob = tables.log_prob(contexts, column).astype(float)
        if n == 0 and eos is not None:
            log_prob = np.where(np.isneginf(log_prob), tables.levels[0].log_prob[eos], log_prob)
        total += log_prob
        contexts = tables.advance(column[:, None], contexts)[..., 0]
    return total


def _renormalize(tables: Tables) -> Tables:
    """The same probabilities with back-off weights that make every context sum to one, from the lowest order up."""
    levels = [tables.levels[0]]
    for n, level in enumerate(tables.levels[1:], 1):
        context = level.key // tables.vocabulary
        contexts = len(levels[n - 1].key)
        # Levels so far only: the lower-order distribution must use the weights that were already recomputed.
        lower = np.exp(
            _lower_order_log_prob(Tables(levels, tables.vocabulary), tables.ngram_ids(n, np.arange(len(level.key))))
        )
        unseen = 1 - np.bincount(context, np.exp(level.log_prob.astype(float)), contexts)
        unseen_lower = 1 - np.bincount(context, lower, contexts)
        weight = log(np.clip(unseen, 0, None) / np.where(unseen_lower > 0, unseen_lower, 1)).astype(np.float32)
        continued = np.bincount(context, minlength=contexts) > 0
        below = levels[n - 1]
        levels[n - 1] = Level(below.key, below.log_prob, np.where(continued, weight, np.float32(0)), below.count)
        levels.append(level)
    return Tables(levels, tables.vocabulary)
