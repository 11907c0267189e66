"""How an answer came about: which order had the n-gram, and what each longer context passed on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqwright.models.ngram.tables import ABSENT, Tables


@dataclass(frozen=True)
class Step:
    """One order's part in the probability of an id, from the longest context to the shortest."""

    context: tuple[int, ...]
    seen: bool
    """The tables have the context; if not, the next shorter one is asked without a weight."""
    back_off: float
    """log weight of the context, added where it does not have the n-gram."""
    log_prob: float | None
    """log p of the n-gram where the tables have it: the answer, and the last step."""
    count: int | None
    """The count read for the n-gram (distinct contexts, for the lower orders of Kneser-Ney), where counts are kept."""
    discount: float
    """What was taken from that count."""


@dataclass(frozen=True)
class Continuation:
    """An id that was seen after a context."""

    id: int
    count: int | None
    log_prob: float


def trace(tables: Tables, context: Sequence[int], id: int, discounts: NDArray[np.float64]) -> list[Step]:
    """The steps from the longest context to the order that answers; log p is its log_prob and the weights before it."""
    contexts = _contexts(tables, context)
    steps: list[Step] = []
    for n in range(min(len(context), tables.order - 1), -1, -1):
        row = int(contexts[n - 1]) if n else 0
        level = tables.levels[n]
        found = int(level.find(np.array([row]), np.array([id]), tables.vocabulary)[0]) if n else id
        answers = found != ABSENT
        weights = tables.levels[n - 1].back_off if n else None
        count = int(level.count[found]) if answers and level.count is not None else None
        steps.append(
            Step(
                context=tuple(context[len(context) - n :]),
                seen=row != ABSENT,
                back_off=float(weights[row]) if weights is not None and row != ABSENT and not answers else 0.0,
                log_prob=float(level.log_prob[found]) if answers else None,
                count=count,
                discount=0.0 if count is None else float(discounts[n][min(count, 3)]),
            )
        )
        if answers:
            break
    return steps


def total(steps: Sequence[Step]) -> float:
    """log p of the id that was traced."""
    return math.fsum(step.back_off if step.log_prob is None else step.log_prob for step in steps)


def continuations(tables: Tables, context: Sequence[int]) -> list[Continuation]:
    """What was seen after the longest end of a context that the tables have, the most probable first."""
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
    """The rows (N - 1,) of the ends of a context, from one id to N - 1."""
    ids = np.array([list(context)], np.int64)
    before = tables.nothing(1)
    return tables.read(ids, before)[:, 0, -1] if len(context) else before[:, 0]
