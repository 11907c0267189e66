"""Lines scored one by one: log-probability and surprisals of each, in order, many at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.protocols import Autoregressive, Counted
from seqwright.metrics.likelihood import CHUNK, score_text
from seqwright.metrics.score import Floats

Ids = NDArray[np.int64]

AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""
BUDGET = 1 << 14
"""Tokens in a batch, padding included."""
COUNTED = 16
"""So many times more of both for counted models: what a question costs them falls with the number asked at once."""


class EncodedLines(Protocol):
    """Many lines as ids, one after the other."""

    @property
    def ids(self) -> Any: ...

    @property
    def lengths(self) -> list[int]: ...


@dataclass(frozen=True, kw_only=True)
class ScoredLine:
    text: str
    ids: Ids
    """Its tokens, the end included where the model predicts one."""
    surprisals: Floats
    """-log p of each token, in nats."""
    log_prob: float
    """Natural log-probability of the line."""

    @property
    def perplexity(self) -> float | None:
        """None for a line without tokens."""
        if not len(self.ids):
            return None
        nll = -self.log_prob / len(self.ids)
        return math.exp(nll) if nll < 700 else math.inf


@torch.inference_mode()
def score_lines(
    model: Autoregressive,
    lines: Iterable[str],
    encode: Callable[[Iterable[str]], EncodedLines],
    *,
    sos: int,
    eos: int | None,
    device: torch.device | str = "cpu",
) -> Iterator[ScoredLine]:
    """Each line as a document of its own, begun by <sos> and, where the model has learned to end, ended by <eos>."""
    source = iter(lines)
    many = COUNTED if isinstance(model, Counted) else 1
    while texts := list(itertools.islice(source, many * AT_ONCE)):
        ids, ends = _ended(encode(texts), eos)
        surprisals = _score(model, ids, ends, sos, many * BUDGET, device)
        total = np.append(0, np.cumsum(surprisals))
        totals = np.diff(total[np.append(0, ends)])
        if not np.isfinite(total[-1]):  # differences of infinite sums say nothing
            totals = np.array([part.sum() for part in np.split(surprisals, ends[:-1])])
        start = 0
        for text, end, nll in zip(texts, ends.tolist(), totals.tolist(), strict=True):
            yield ScoredLine(text=text, ids=ids[start:end], surprisals=surprisals[start:end], log_prob=-nll)
            start = end


def _ended(encoded: EncodedLines, eos: int | None) -> tuple[Ids, Ids]:
    """All ids with <eos> after each line, and where in them each line ends."""
    lengths = np.array(encoded.lengths, np.int64)
    ids = encoded.ids.astype(np.int64)
    if eos is None:
        return ids, np.cumsum(lengths)
    return np.insert(ids, np.cumsum(lengths), eos), np.cumsum(lengths + 1)


def _score(model: Autoregressive, ids: Ids, ends: Ids, sos: int, budget: int, device: torch.device | str) -> Floats:
    """Surprisals of all ids; lines shorter than the context together, longer ones alone in overlapping windows."""
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    surprisals = np.zeros(len(ids))
    long = lengths > (CHUNK if model.context is None else model.context)
    for n in np.flatnonzero(long):
        line = slice(starts[n], ends[n])
        whole = score_text(model, torch.from_numpy(np.append(sos, ids[line])), sos=sos, device=device)
        surprisals[line] = -whole.log_probs
    order = np.argsort(lengths, kind="stable")
    for group in _groups(order[(lengths[order] > 0) & ~long[order]], lengths, budget):
        width = np.arange(lengths[group[-1]])
        real = width < lengths[group, None]  # (B, T)
        places = np.where(real, starts[group, None] + width, 0)
        target = np.where(real, ids[places], IGNORE)
        input = np.concatenate([np.full((len(group), 1), sos), np.where(real, target, 0)[:, :-1]], 1)
        batch = Batch.of_text(torch.from_numpy(input), torch.from_numpy(target))
        scored, _ = model.score(batch.to(device))
        surprisals[places[real]] = -scored.cpu().double().numpy()[real]
    return surprisals


def _groups(order: Ids, lengths: Ids, budget: int) -> Iterator[Ids]:
    """Neighbors in length whose padded batch stays within the budget."""
    start = 0
    while start < len(order):
        cost = np.arange(1, len(order) - start + 1) * lengths[order[start:]]
        stop = start + max(1, int(np.searchsorted(cost, budget, "right")))
        yield order[start:stop]
        start = stop
