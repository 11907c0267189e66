"""Lines scored one by one: log-probability and surprisals of each, in order, many at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from seqwright.batch import IGNORE, Batch
from seqwright.interface import Autoregressive
from seqwright.metrics.likelihood import CHUNK, score_text

AT_ONCE = 512
"""Lines read ahead, so that lines of like length can share a batch."""
BUDGET = 1 << 14
"""Tokens in a batch, padding included."""


class EncodedLines(Protocol):
    """Many lines as ids, one after the other."""

    @property
    def ids(self) -> Any: ...

    @property
    def lengths(self) -> list[int]: ...


@dataclass(frozen=True, kw_only=True)
class ScoredLine:
    text: str
    ids: list[int]
    """Its tokens, the end included where the model predicts one."""
    surprisals: list[float]
    """-log p of each token, in nats."""

    @property
    def log_prob(self) -> float:
        """Natural log-probability of the line."""
        return -math.fsum(self.surprisals)

    @property
    def perplexity(self) -> float | None:
        """None for a line without tokens."""
        return math.exp(-self.log_prob / len(self.ids)) if self.ids else None


@torch.inference_mode()
def score_lines(
    model: Autoregressive,
    lines: Iterable[str],
    encode: Callable[[Iterable[str]], EncodedLines],
    *,
    sos: int | None,
    eos: int | None,
    device: torch.device | str = "cpu",
) -> Iterator[ScoredLine]:
    """Each line as a document of its own, begun by <sos> and, where the model has learnt to end, ended by <eos>."""
    source = iter(lines)
    while texts := list(itertools.islice(source, AT_ONCE)):
        encoded = encode(texts)
        cuts = np.cumsum(encoded.lengths)[:-1]
        end = [] if eos is None else [eos]
        documents = [part.tolist() + end for part in np.split(encoded.ids, cuts)]
        scored = _score(model, documents, sos, device)
        for text, ids, surprisals in zip(texts, documents, scored, strict=True):
            yield ScoredLine(text=text, ids=ids, surprisals=surprisals)


def _score(
    model: Autoregressive, documents: list[list[int]], sos: int | None, device: torch.device | str
) -> list[list[float]]:
    """Surprisals of each document; short ones together, those longer than the context (or CHUNK) alone."""
    surprisals: list[list[float]] = [[] for _ in documents]
    fitting = []
    longest = CHUNK if model.context is None else model.context
    for n, ids in enumerate(documents):
        if len(ids) > longest:
            whole = score_text(model, torch.tensor(_framed(ids, sos)), sos=sos, device=device)
            surprisals[n] = (-whole.log_probs).tolist()
        elif ids:
            fitting.append(n)
    for group in _groups(sorted(fitting, key=lambda n: len(documents[n])), documents):
        batch = _padded([_framed(documents[n], sos) for n in group])
        scored, _ = model.score(batch.to(device))
        for n, row in zip(group, (-scored).cpu().double().tolist(), strict=True):
            surprisals[n] = row[: len(documents[n])]
    return surprisals


def _framed(ids: list[int], sos: int | None) -> list[int]:
    return ids if sos is None else [sos, *ids]


def _groups(order: Sequence[int], documents: list[list[int]]) -> Iterator[list[int]]:
    """Neighbours in length whose padded batch stays within the budget."""
    group: list[int] = []
    for n in order:
        if group and (len(group) + 1) * len(documents[n]) > BUDGET:
            yield group
            group = []
        group.append(n)
    if group:
        yield group


def _padded(rows: list[list[int]]) -> Batch:
    width = max(map(len, rows)) - 1
    input = torch.zeros(len(rows), width, dtype=torch.long)
    target = torch.full((len(rows), width), IGNORE)
    for n, row in enumerate(rows):
        ids: Tensor = torch.tensor(row)
        input[n, : len(row) - 1] = ids[:-1]
        target[n, : len(row) - 1] = ids[1:]
    return Batch.of_text(input, target)
