"""Sentence scoring: log-probability and token surprisals of every line, in order, batched by length."""

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
from seqwright.core.notebook import NotebookTable
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive, CountedModel
from seqwright.metrics.likelihood import CHUNK, score_text
from seqwright.metrics.score import Floats

Ids = NDArray[np.int64]

READ_AHEAD = 512
"""Lines read ahead and sorted, so that lines of similar length share a batch."""
BATCH_TOKENS = 1 << 14
"""Tokens per batch, padding included."""
COUNTED_FACTOR = 16
"""Factor on both for count-based models (n-grams), whose cost per token falls with the batch."""


class EncodedLines(Protocol):
    """Ids of lines, concatenated, and the length of each."""

    @property
    def ids(self) -> Any: ...

    @property
    def lengths(self) -> list[int]: ...


@dataclass(frozen=True, kw_only=True, eq=False)  # arrays have no one truth value
class ScoredLine(NotebookTable):
    """A line with the surprisal of each token."""

    text: str
    ids: Ids
    """Ids, including <eos> if the model predicts it."""
    surprisals: Floats
    """-log p of each token, in nats."""
    log_prob: float
    """Natural log-probability of the line."""

    @property
    def perplexity(self) -> float | None:
        """Perplexity per token; None for a line without tokens, infinite where exp would overflow."""
        if not len(self.ids):
            return None
        nll = -self.log_prob / len(self.ids)
        return math.exp(nll) if nll < 700 else math.inf  # exp overflows float64 above 709.78


def score_lines(
    model: Autoregressive,
    lines: Iterable[str],
    encode: Callable[[Iterable[str]], EncodedLines],
    *,
    sos: int,
    eos: int | None,
    device: torch.device | str = "cpu",
    progress: Progress = SILENT,
) -> Iterator[ScoredLine]:
    """Scores each line as a document: <sos>, the line, and <eos> if the model has learned to predict it. `progress` is
    that of lines longer than the context, which may take minutes."""
    source = iter(lines)
    factor = COUNTED_FACTOR if isinstance(model, CountedModel) else 1
    longest = CHUNK if model.context is None else model.context
    while texts := list(itertools.islice(source, factor * READ_AHEAD)):
        encoded = encode(texts)
        if len(texts) == 1 and 0 < len(encoded.ids) < longest:
            yield _score_alone(model, texts[0], encoded.ids, sos, eos, device)
            continue
        ids, ends = _with_eos(encoded, eos)
        with torch.inference_mode():  # as a decorator it would be entered and left for every line
            surprisals = _score(model, ids, ends, sos, longest, factor * BATCH_TOKENS, device, progress)
        total = np.append(0, np.cumsum(surprisals))
        totals = np.diff(total[np.append(0, ends)])
        if not np.isfinite(total[-1]):  # inf - inf is nan: sum each line by itself
            totals = np.array([part.sum() for part in np.split(surprisals, ends[:-1])])
        start = 0
        for text, end, nll in zip(texts, ends.tolist(), totals.tolist(), strict=True):
            yield ScoredLine(text=text, ids=ids[start:end], surprisals=surprisals[start:end], log_prob=-nll)
            start = end


def _score_alone(
    model: Autoregressive, text: str, encoded: Ids, sos: int, eos: int | None, device: torch.device | str
) -> ScoredLine:
    """A line that fits into the context, alone, as programs ask that need each score before the next line: nothing to
    sort or to pad."""
    framed = np.empty(len(encoded) + (1 if eos is None else 2), np.int64)
    framed[0], framed[1 : len(encoded) + 1] = sos, encoded
    if eos is not None:
        framed[-1] = eos
    row = torch.from_numpy(framed).to(device).unsqueeze(0)  # (1, T + 1)
    with torch.inference_mode():
        log_probs, _ = model.score(Batch.of_text(row[:, :-1], row[:, 1:]))
    surprisals = -log_probs[0].cpu().double().numpy()
    return ScoredLine(text=text, ids=framed[1:], surprisals=surprisals, log_prob=-float(surprisals.cumsum()[-1]))


def _with_eos(encoded: EncodedLines, eos: int | None) -> tuple[Ids, Ids]:
    """All ids with <eos> after each line, and the end offset of each line."""
    lengths = np.array(encoded.lengths, np.int64)
    ids = encoded.ids.astype(np.int64)
    if eos is None:
        return ids, np.cumsum(lengths)
    return np.insert(ids, np.cumsum(lengths), eos), np.cumsum(lengths + 1)


def _score(
    model: Autoregressive,
    ids: Ids,
    ends: Ids,
    sos: int,
    longest: int,
    budget: int,
    device: torch.device | str,
    progress: Progress,
) -> Floats:
    """Surprisals of all ids: lines within the context in padded batches, longer ones alone in overlapping windows."""
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    surprisals = np.zeros(len(ids))
    long = lengths > longest
    for n in np.flatnonzero(long):
        line = slice(starts[n], ends[n])
        text = torch.from_numpy(np.append(sos, ids[line]))
        scored = score_text(model, text, sos=sos, device=device, progress=progress)
        surprisals[line] = -scored.log_probs
    order = np.argsort(lengths, kind="stable")
    for group in _batches(order[(lengths[order] > 0) & ~long[order]], lengths, budget):
        positions = np.arange(lengths[group[-1]])
        mask = positions < lengths[group, None]  # (B, T)
        indices = np.where(mask, starts[group, None] + positions, 0)
        target = np.where(mask, ids[indices], IGNORE)
        input = np.concatenate([np.full((len(group), 1), sos), np.where(mask, target, 0)[:, :-1]], 1)
        batch = Batch.of_text(torch.from_numpy(input), torch.from_numpy(target))
        log_probs, _ = model.score(batch.to(device))
        surprisals[indices[mask]] = -log_probs.cpu().double().numpy()[mask]
    return surprisals


def _batches(order: Ids, lengths: Ids, budget: int) -> Iterator[Ids]:
    """Batches of lines adjacent in length whose padded size stays within the token budget."""
    start = 0
    while start < len(order):
        cost = np.arange(1, len(order) - start + 1) * lengths[order[start:]]
        stop = start + max(1, int(np.searchsorted(cost, budget, "right")))
        yield order[start:stop]
        start = stop
