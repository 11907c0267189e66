"""Back-off trace: which order has the n-gram, and the back-off weights of the longer contexts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.tables import ABSENT, Tables


@dataclass(frozen=True)
class Step:
    """One order of a back-off trace, from the longest context to the shortest."""

    context: tuple[int, ...]
    seen: bool
    """Whether the context is in the tables; if not, its back-off weight is 1."""
    back_off: float
    """log weight of the context where the n-gram is missing, else 0."""
    log_prob: float | None
    """log p of the n-gram where the tables have it, which ends the trace; else None."""
    count: int | None
    """Count of the n-gram (continuation count, for the lower orders of Kneser-Ney), where counts are stored."""
    discount: float
    """Discount of that count."""
    total: int | None
    """Sum of the counts of all n-grams with this context that the tables have."""
    followers: int | None
    """Number of those n-grams: distinct tokens seen after the context."""
    weight: float | None
    """What the probability after the shorter context was multiplied with and added; None for unigrams."""


@dataclass(frozen=True)
class Continuation:
    """An id observed after a context."""

    id: int
    count: int | None
    log_prob: float


def trace(tables: Tables, context: Sequence[int], id: int, discounts: NDArray[np.float64]) -> list[Step]:
    """The back-off steps from the longest context to the order that has the n-gram; `total` is their sum, log p."""
    contexts = _contexts(tables, context)
    steps: list[Step] = []
    for n in range(min(len(context), tables.order - 1), -1, -1):
        row = int(contexts[n - 1]) if n else 0
        level = tables.levels[n]
        ngram = int(level.lookup(np.array([row]), np.array([id]), tables.vocabulary)[0]) if n else id
        hit = ngram != ABSENT
        weights = tables.levels[n - 1].back_off if n else None
        count = int(level.count[ngram]) if hit and level.count is not None else None
        total, followers = _counted(tables, n, row) if hit else (None, None)
        steps.append(
            Step(
                context=tuple(context[len(context) - n :]),
                seen=row != ABSENT,
                back_off=float(weights[row]) if weights is not None and row != ABSENT and not hit else 0.0,
                log_prob=float(level.log_prob[ngram]) if hit else None,
                count=count,
                discount=0.0 if count is None else float(discounts[n][min(count, 3)]),
                total=total,
                followers=followers,
                weight=math.exp(float(weights[row])) if weights is not None and hit else None,
            )
        )
        if hit:
            break
    return steps


def _counted(tables: Tables, n: int, row: int) -> tuple[int | None, int | None]:
    """The sum of the counts after a context of n ids, and how many n-grams have one."""
    count = tables.levels[n].count
    if count is None:
        return None, None
    after = count[tables.children(n - 1, np.array([row]))[0]] if n else count
    return int(after.sum()), int(np.count_nonzero(after))


def total(steps: Sequence[Step]) -> float:
    """log p of the traced id: its log-probability plus the back-off weights before it."""
    return math.fsum(step.back_off if step.log_prob is None else step.log_prob for step in steps)


def continuations(tables: Tables, context: Sequence[int]) -> list[Continuation]:
    """The ids observed after the longest suffix of a context that the tables have, most probable first."""
    contexts = _contexts(tables, context)
    known = [m for m, row in enumerate(contexts) if row != ABSENT]
    if known:
        level = tables.levels[known[-1] + 1]
        rows, _ = tables.children(known[-1], contexts[known[-1] :][:1])
        ids = level.key[rows] % tables.vocabulary
    else:
        level = tables.levels[0]
        rows = ids = np.flatnonzero(np.isfinite(level.log_prob))
    best = np.argsort(-level.log_prob[rows], kind="stable")
    return [
        Continuation(
            int(ids[i]), None if level.count is None else int(level.count[rows[i]]), float(level.log_prob[rows[i]])
        )
        for i in best
    ]


def _contexts(tables: Tables, context: Sequence[int]) -> NDArray[np.int64]:
    """The rows (N - 1,) of the suffixes of a context, of one id to N - 1."""
    ids = np.array([list(context)], np.int64)
    before = tables.empty_contexts(1)
    return tables.advance(ids, before)[:, 0, -1] if len(context) else before[:, 0]
