"""Adaptive n-grams: a cache of the text read so far, interpolated with a static n-gram model.

The static model gives the prior p₀. Each context of m ids, from `shortest` to `longest`, that has occurred earlier in
the text updates it with the ids that followed, interpolated with Witten-Bell weights (Witten & Bell 1991):

    p_m(w | h) = (c_m(h w) + k T_m(h) p_{m-1}(w | h)) / (c_m(h) + k T_m(h))

c counts occurrences in the row's text so far and T the distinct ids among them. This is an n-gram cache (Kuhn &
De Mori 1990), or PPM (Cleary & Witten 1984) on top of a trained model. The text is part of the state, so that the laws
of autoregressive models hold (docs/decisions/0041).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import CountedModel
from seqwright.core.state import State, shared

Ints = NDArray[np.int64]
FIRST_IDS = 4096
"""Ids of each row at first: `capacity` may be that of a request for any number of tokens. Rows double beyond."""
NO_CONTEXT = -1
"""Context number where fewer ids than the context length precede a position."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions:
    shortest: int = 3
    """Shortest cached context, in tokens; 1 suits words, 3 characters."""
    longest: int = 8
    """Longest cached context, in tokens; 3 suits words, 8 characters."""
    strength: float = 24.0
    """Prior strength k: the static model counts as k · T virtual occurrences, T the distinct tokens that followed the
    context."""

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise UserError(
                f"contexts of {self.shortest} to {self.longest} tokens are an empty range; try shortest = 1,"
                " longest = 3."
            )
        if self.strength <= 0:
            raise UserError(f"strength must be positive, not {self.strength:g}; try 24.")


@dataclass
class AdaptiveState(State):
    """The state of the static model, and the text of each row so far."""

    trained: State
    ids: Tensor
    """(B, T), right-padded."""
    count: Tensor
    """(B,): number of real ids in each row."""
    capacity: Tensor = shared()
    """() long: ids that a row may have; `ids` grows up to it."""

    @classmethod
    def aligned(cls, states: Sequence[Self]) -> list[Self]:
        """As many columns of ids in every state."""
        columns = max(state.ids.size(1) for state in states)
        return [replace(state, ids=F.pad(state.ids, (0, columns - state.ids.size(1)))) for state in states]


class Adaptive(CountedModel):
    """A static n-gram with a cache of the text; `fit`, `state_dict` and `load_state_dict` are the static model's."""

    adaptive = True
    """Scores depend on the order of the texts, which their signature states."""

    def __init__(self, model: Any, options: AdaptiveOptions, vocabulary: Vocabulary):
        self.model = model
        self.options = options
        self.predictable = np.ones(vocabulary.size, bool)
        """(V,): ids that can be predicted; only these are counted."""
        self.predictable[[id for id in (vocabulary.sos, vocabulary.pad) if id is not None]] = False

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        notes: list[str] = self.model.notes
        return notes

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.model.facts
        return facts

    def fit(self, corpus: Any, progress: Progress = SILENT) -> None:
        self.model.fit(corpus, progress)

    def state_dict(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = self.model.state_dict()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(tensors)

    def start(self, source: Source, *, capacity: int) -> AdaptiveState:
        ids = torch.zeros(source.rows, min(capacity, FIRST_IDS), dtype=torch.long, device=source.device)
        trained = self.model.start(source, capacity=capacity)
        count = torch.zeros(source.rows, dtype=torch.long, device=source.device)
        return AdaptiveState(trained, ids, count, torch.tensor(capacity))

    def step(
        self, ids: Tensor, state: AdaptiveState, count: Tensor | None = None, *, all_positions: bool = False
    ) -> tuple[Tensor, AdaptiveState]:
        """Log-probabilities (B, V) of the next token after ids (B, T), or (B, T, V) after each, and the state after."""
        if all_positions:  # the cache differs at each position
            steps, at = [], state
            for column in ids.unbind(1):
                log_probs, at = self.step(column.unsqueeze(1), at)
                steps.append(log_probs)
            return torch.stack(steps, 1), self.step(ids, state, count)[1]
        log_probs, trained = self.model.step(ids, state.trained, count)
        added = torch.full_like(state.count, ids.size(1)) if count is None else count
        # Rows beyond the capacity are free slots of the decoding engine, which nobody reads.
        length = (state.count + added).clamp(max=int(state.capacity))
        after = AdaptiveState(trained, _append(state, ids), length, state.capacity)
        probability = self._adapted_distribution(after, log_probs.double().exp())  # (B, V)
        return probability.log().float(), after

    def score(self, batch: Batch, state: AdaptiveState | None = None) -> tuple[Tensor, AdaptiveState | None]:
        before = self.start(batch.source, capacity=batch.input.size(1)) if state is None else state
        log_probs, trained = self.model.score(batch, None if state is None else state.trained)
        ids = _append(before, batch.input)
        prior = log_probs.double().exp().cpu().numpy()
        adapted = self._adapted_scores(prior, ids.cpu().numpy(), before.count.cpu().numpy(), batch.target.cpu().numpy())
        with np.errstate(divide="ignore"):
            scored = torch.from_numpy(np.log(adapted).astype(np.float32)).to(batch.input.device)
        scored = scored.masked_fill(batch.target == IGNORE, 0)
        length = before.count + batch.input.size(1)
        return scored, None if state is None else AdaptiveState(trained, ids, length, before.capacity)

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities (B, T, V), one step after another: the cache differs at each position."""
        state = self.start(batch.source, capacity=batch.input.size(1))
        steps = []
        for t in range(batch.input.size(1)):
            log_probs, state = self.step(batch.input[:, t : t + 1], state)
            steps.append(log_probs)
        return torch.stack(steps, 1)

    def _adapted_scores(
        self, probability: NDArray[np.float64], ids: Ints, before: Ints, target: Ints
    ) -> NDArray[np.float64]:
        """p(target) (B, T): the prior updated by the cache as it was at each position."""
        rows, steps = target.shape
        lengths = before + steps
        ends = np.cumsum(lengths)
        row_of = np.repeat(np.arange(rows), lengths)
        text = ids[row_of, np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)]  # all rows, concatenated
        new = (ends - steps)[:, None] + np.arange(steps)  # (B, T): positions of the batch's inputs in `text`
        following = np.append(text[1:], 0)
        counts = self.predictable[following]
        counts[ends - 1] = False  # the id after the last one has not been read yet
        queried = following.copy()
        queried[new] = np.where(target == IGNORE, 0, target)
        # Contexts are numbered per row, so that no row is scored from the text of another.
        context = _dense_ids(row_of * len(self.predictable) + text)
        for m in range(1, self.options.longest + 1):
            if m > 1:
                context = self._extend_contexts(context, text, ends - lengths)
            if m >= self.options.shortest:
                total, matches, distinct = self._cache_counts(
                    context, following, queried, counts & (context != NO_CONTEXT)
                )
                mass = self.options.strength * distinct[new]
                updated = (matches[new] + mass * probability) / np.maximum(total[new] + mass, 1)
                probability = np.where(total[new] > 0, updated, probability)
        return probability

    def _extend_contexts(self, context: Ints, text: Ints, starts: Ints) -> Ints:
        """Numbers of the contexts one id longer, from those of the contexts that end at each position."""
        before = np.append(NO_CONTEXT, context[:-1])
        before[starts] = NO_CONTEXT
        longer = _dense_ids(before * len(self.predictable) + text)
        return np.where(before == NO_CONTEXT, NO_CONTEXT, longer)

    def _cache_counts(
        self, context: Ints, following: Ints, queried: Ints, counts: NDArray[np.bool_]
    ) -> tuple[Ints, Ints, Ints]:
        """c(h), c(h w) of the queried id, and T(h) at each position, over the text before it."""
        width = len(self.predictable)
        # Each position is two events: the query first, then the occurrence, which only later queries may count.
        events = np.stack([context * width + queried, context * width + following], 1).ravel()
        seen = _preceding_counts(events, np.stack([np.zeros_like(counts), counts], 1).ravel()).reshape(-1, 2)
        first = counts & (seen[:, 1] == 0)
        return _preceding_counts(context, counts), seen[:, 0], _preceding_counts(context, first)

    def _adapted_distribution(self, state: AdaptiveState, probability: Tensor) -> Tensor:
        """The distribution (B, V) after the last id: the prior updated by the cache."""
        ids, last = state.ids.cpu(), state.count.cpu() - 1  # (B, capacity), (B,)
        probability, device = probability.cpu(), probability.device
        positions = torch.arange(ids.size(1))
        row, position = ((positions < last[:, None]) & (ids == ids.gather(1, last.clamp(min=0)[:, None]))).nonzero(
            as_tuple=True
        )
        for m in range(1, self.options.longest + 1):
            if m > 1:  # of the positions that match m - 1 ids, those that also match one id further back
                row, position = row[position >= m - 1], position[position >= m - 1]
                same = ids[row, position - m + 1] == ids[row, last[row] - m + 1]
                row, position = row[same], position[same]
            if m >= self.options.shortest:
                next = ids[row, position + 1]
                counted = torch.from_numpy(self.predictable)[next]
                counts = torch.zeros_like(probability)
                counts.index_put_((row[counted], next[counted]), torch.ones(()).double(), accumulate=True)
                total, mass = counts.sum(1), self.options.strength * (counts > 0).sum(1)
                updated = (counts + mass[:, None] * probability) / (total + mass).clamp(min=1)[:, None]
                probability = torch.where(total[:, None] > 0, updated, probability)
        return probability.to(device)


def _append(state: AdaptiveState, ids: Tensor) -> Tensor:
    """The state's ids with new ones written after the real ones of each row."""
    positions = state.count[:, None] + torch.arange(ids.size(1), device=ids.device)
    before, size, capacity = state.ids, state.ids.size(1), int(state.capacity)
    needed = min(int(positions.max()) + 1, capacity)
    if needed > size:
        before = F.pad(before, (0, min(2 * needed, capacity) - size))
    return before.scatter(1, positions.clamp(max=before.size(1) - 1), ids)


def _dense_ids(key: Ints) -> Ints:
    """Keys mapped to 0, 1, 2, … (ordinal encoding), so that products with V stay within int64."""
    number: Ints = torch.unique(torch.from_numpy(key), return_inverse=True)[1].numpy()
    return number


def _preceding_counts(key: Ints, counts: NDArray[np.bool_]) -> Ints:
    """At each position, how many earlier positions with the same key have `counts` set."""
    ordered, order = (t.numpy() for t in torch.sort(torch.from_numpy(key), stable=True))
    running = np.cumsum(counts[order]) - counts[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(key)), 0))
    total = np.empty_like(running)
    total[order] = running - running[first]
    return total
