"""Leaving n-grams out: the rare ones before the estimate, those that hardly matter after it.

Either way a kept n-gram keeps its prefix, without which it could not be found.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.counting import Counts, Mask, Rows
from seqwright.models.ngram.tables import Level, Tables, log

Floats = NDArray[np.float64]


def cut_off(counted: Counts, cutoffs: tuple[int, ...]) -> list[Mask]:
    """Of each order, which n-grams occur more often than its cut-off or begin one that does."""
    kept: list[Mask] = []
    for n in reversed(range(len(counted.orders))):
        cutoff = cutoffs[min(n, len(cutoffs) - 1)]
        mask = counted.orders[n].count > cutoff if cutoff else np.ones(len(counted.orders[n]), bool)
        if kept:
            mask[counted.orders[n + 1].key[kept[0]] // counted.vocabulary] = True
        kept.insert(0, mask)
    return kept


def prune(tables: Tables, threshold: float, *, eos: int | None) -> Tables:
    """The tables without the n-grams whose loss would raise perplexity by less than a share of it (Stolcke 1998).

    Each n-gram is judged by the model as it was; then the weights of all contexts are made to fit what is left.
    """
    kept: list[Mask] = []
    for n in reversed(range(tables.order)):
        mask = np.ones(len(tables.levels[n].key), bool) if n == 0 else _rise(tables, n, eos) >= threshold
        if kept:
            mask[tables.levels[n + 1].key[kept[0]] // tables.vocabulary] = True
        kept.insert(0, mask)
    return _reweighted(tables.take(kept))


def _rise(tables: Tables, n: int, eos: int | None) -> Floats:
    """By how large a share perplexity rises without each n-gram of length n + 1."""
    level, context = tables.levels[n], tables.levels[n].key // tables.vocabulary
    words = tables.words(n, np.arange(len(level.key)))  # (R, n + 1)
    full, backed = np.exp(level.log_prob.astype(float)), np.exp(_shorter(tables, words))
    contexts = len(tables.levels[n - 1].key)
    unseen = 1 - np.bincount(context, full, contexts)[context]
    unseen_backed = 1 - np.bincount(context, backed, contexts)[context]
    weight = tables.levels[n - 1].back_off
    assert weight is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        changed = np.log(unseen + full) - np.log(unseen_backed + backed)  # the context's log weight without the n-gram
        lost = full * (np.log(backed) + changed - np.log(full))
        moved = np.where(unseen > 0, unseen * (changed - weight[context]), 0)
        divergence = -np.exp(_history(tables, words[:, :-1], eos)) * (lost + moved)
    return np.where(full > 0, np.expm1(divergence), 0)


def _shorter(tables: Tables, words: Rows) -> Floats:
    """log p(last id | the ids before it but the first)."""
    contexts = tables.nothing(len(words))
    for column in words[:, 1:-1].T:
        contexts = tables.read(column[:, None], contexts)[..., 0]
    return tables.log_prob(contexts, words[:, -1]).astype(float)


def _history(tables: Tables, words: Rows, eos: int | None) -> Floats:
    """log p of a context by itself. <sos>, which is never predicted, begins as many documents as <eos> ends."""
    total, contexts = np.zeros(len(words)), tables.nothing(len(words))
    for n, column in enumerate(words.T):
        log_prob = tables.log_prob(contexts, column).astype(float)
        if n == 0 and eos is not None:
            log_prob = np.where(np.isneginf(log_prob), tables.levels[0].log_prob[eos], log_prob)
        total += log_prob
        contexts = tables.read(column[:, None], contexts)[..., 0]
    return total


def _reweighted(tables: Tables) -> Tables:
    """The same probabilities with the weights that make every context sum to one, from short to long."""
    levels = [tables.levels[0]]
    for n, level in enumerate(tables.levels[1:], 1):
        context = level.key // tables.vocabulary
        contexts = len(levels[n - 1].key)
        # Levels above are not asked: contexts of n - 1 ids answer for the shorter history.
        backed = np.exp(_shorter(Tables(levels, tables.vocabulary), tables.words(n, np.arange(len(level.key)))))
        left = 1 - np.bincount(context, np.exp(level.log_prob.astype(float)), contexts)
        below = 1 - np.bincount(context, backed, contexts)
        weight = log(np.clip(left, 0, None) / np.where(below > 0, below, 1)).astype(np.float32)
        continued = np.bincount(context, minlength=contexts) > 0
        lower = levels[n - 1]
        levels[n - 1] = Level(lower.key, lower.log_prob, np.where(continued, weight, np.float32(0)), lower.count)
        levels.append(level)
    return Tables(levels, tables.vocabulary)
