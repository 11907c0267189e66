"""Adaptation: a model that also learns from the text it is reading, by counting what followed in it so far.

The model's own answer is the prior p₀. Each context of m ids, from the shortest asked to the longest, that stood in the
text before corrects it by what followed it there, as Witten & Bell (1991) weigh a context against a shorter one:

    p_m(w | h) = (c_m(h w) + k T_m(h) p_{m-1}(w | h)) / (c_m(h) + k T_m(h))

c counts occurrences in the text of the row so far and T the different ids among them. It is a cache (Kuhn & De Mori
1990) of n-grams, or PPM (Cleary & Witten 1984) on top of a trained model. The text is in the state, so every law holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.core.protocols import Doing, State, unheard

Rows = NDArray[np.int64]
NOWHERE = -1
"""The number of a context that reaches over the beginning of its text."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions:
    shortest: int = 3
    """Ids in the shortest context looked for in the text read so far; 1 suits words, 3 characters."""
    longest: int = 8
    """Ids in the longest; 3 suits words, 8 characters."""
    strength: float = 24.0
    """How much the trained model is trusted against what was read: k T virtual occurrences, T ids having followed."""

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise UserError(
                f"contexts of {self.shortest} to {self.longest} ids are none; try shortest = 1, longest = 3."
            )
        if self.strength <= 0:
            raise UserError(f"strength must be positive, not {self.strength:g}; try 24.")


@dataclass
class Read(State):
    """What the trained model remembers, and all that was read."""

    trained: State
    ids: Tensor
    """(B, capacity), right-padded."""
    count: Tensor
    """(B,): how many of them are real."""


class Adaptive:
    """A counted model that adapts to what it reads; `fit`, `tensors` and `load` are those of the model inside."""

    context = None
    adaptive = True
    """Scores depend on the order in which texts are read: said in their signature."""

    def __init__(self, model: Any, options: AdaptiveOptions, vocabulary: Vocabulary):
        self.model = model
        self.options = options
        self.countable = np.ones(vocabulary.size, bool)
        """(V,): what can be predicted, and so counts as having followed."""
        self.countable[[id for id in (vocabulary.sos, vocabulary.pad) if id is not None]] = False

    @property
    def notes(self) -> list[str]:
        notes: list[str] = self.model.notes
        return notes

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.model.facts
        return facts

    def fit(self, corpus: Any, doing: Doing = unheard) -> None:
        self.model.fit(corpus, doing)

    def state_dict(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = self.model.state_dict()
        return tensors

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        self.model.load_state_dict(tensors)

    def start(self, source: Source, *, capacity: int) -> Read:
        nothing = torch.zeros(source.rows, capacity, dtype=torch.long, device=source.device)
        trained = self.model.start(source, capacity=capacity)
        return Read(trained, nothing, torch.zeros(source.rows, dtype=torch.long, device=source.device))

    def step(self, ids: Tensor, state: Read, count: Tensor | None = None) -> tuple[Tensor, Read]:
        log_probs, trained = self.model.step(ids, state.trained, count)
        added = torch.full_like(state.count, ids.size(1)) if count is None else count
        after = Read(trained, _appended(state, ids), state.count + added)
        probability = self._followed(after, log_probs.double().exp())  # (B, V)
        return probability.log().float(), after

    def score(self, batch: Batch, state: Read | None = None) -> tuple[Tensor, Read | None]:
        before = self.start(batch.source, capacity=batch.input.size(1)) if state is None else state
        log_probs, trained = self.model.score(batch, None if state is None else state.trained)
        ids = _appended(before, batch.input)
        prior = log_probs.double().exp().cpu().numpy()
        adapted = self._adapted(prior, ids.cpu().numpy(), before.count.cpu().numpy(), batch.target.cpu().numpy())
        with np.errstate(divide="ignore"):
            scored = torch.from_numpy(np.log(adapted).astype(np.float32)).to(batch.input.device)
        scored = scored.masked_fill(batch.target == IGNORE, 0)
        return scored, None if state is None else Read(trained, ids, before.count + batch.input.size(1))

    def __call__(self, batch: Batch) -> Tensor:
        """Log-probabilities, one step after another: what was read so far differs at each."""
        state = self.start(batch.source, capacity=batch.input.size(1))
        answers = []
        for t in range(batch.input.size(1)):
            log_probs, state = self.step(batch.input[:, t : t + 1], state)
            answers.append(log_probs)
        return torch.stack(answers, 1)

    def _adapted(self, probability: NDArray[np.float64], ids: Rows, before: Rows, target: Rows) -> NDArray[np.float64]:
        """p(target) (B, T) under the prior, corrected by what each context was followed by before."""
        rows, steps = target.shape
        lengths = before + steps
        ends = np.cumsum(lengths)
        owner = np.repeat(np.arange(rows), lengths)
        text = ids[owner, np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)]  # all rows, one after another
        new = (ends - steps)[:, None] + np.arange(steps)  # (B, T): where the rows' inputs stand in it
        following = np.append(text[1:], 0)
        counts = self.countable[following]
        counts[ends - 1] = False  # what follows the last id was not read yet
        asked = following.copy()
        asked[new] = np.where(target == IGNORE, 0, target)
        context = _numbered(owner * len(self.countable) + text)
        for m in range(1, self.options.longest + 1):
            if m > 1:
                context = self._longer(context, text, ends - lengths)
            if m >= self.options.shortest:
                times, pairs, kinds = self._tallies(context, following, asked, counts & (context != NOWHERE))
                mass = self.options.strength * kinds[new]
                answer = (pairs[new] + mass * probability) / np.maximum(times[new] + mass, 1)
                probability = np.where(times[new] > 0, answer, probability)
        return probability

    def _longer(self, context: Rows, text: Rows, starts: Rows) -> Rows:
        """Numbers of the contexts with one id more, given those of the contexts that end at each id."""
        before = np.append(NOWHERE, context[:-1])
        before[starts] = NOWHERE
        longer = _numbered(before * len(self.countable) + text)
        return np.where(before == NOWHERE, NOWHERE, longer)

    def _tallies(
        self, context: Rows, following: Rows, asked: Rows, counts: NDArray[np.bool_]
    ) -> tuple[Rows, Rows, Rows]:
        """c(h), c(h w) of the id asked for, and T(h) at each place, over what was read before it."""
        width = len(self.countable)
        # At each place the question stands before the occurrence that answers later ones.
        events = np.stack([context * width + asked, context * width + following], 1).ravel()
        seen = _before(events, np.stack([np.zeros_like(counts), counts], 1).ravel()).reshape(-1, 2)
        first = counts & (seen[:, 1] == 0)
        return _before(context, counts), seen[:, 0], _before(context, first)

    def _followed(self, state: Read, probability: Tensor) -> Tensor:
        """The whole distribution (B, V) after the last id read, corrected likewise."""
        ids, last = state.ids.cpu(), state.count.cpu() - 1  # (B, capacity), (B,)
        probability, device = probability.cpu(), probability.device
        every = torch.arange(ids.size(1))
        row, place = ((every < last[:, None]) & (ids == ids.gather(1, last.clamp(min=0)[:, None]))).nonzero(
            as_tuple=True
        )
        for m in range(1, self.options.longest + 1):
            if m > 1:  # of the places that agree so far, those that agree one id further back
                row, place = row[place >= m - 1], place[place >= m - 1]
                same = ids[row, place - m + 1] == ids[row, last[row] - m + 1]
                row, place = row[same], place[same]
            if m >= self.options.shortest:
                next = ids[row, place + 1]
                counted = torch.from_numpy(self.countable)[next]
                counts = torch.zeros_like(probability)
                counts.index_put_((row[counted], next[counted]), torch.ones(()).double(), accumulate=True)
                times, mass = counts.sum(1), self.options.strength * (counts > 0).sum(1)
                answer = (counts + mass[:, None] * probability) / (times + mass).clamp(min=1)[:, None]
                probability = torch.where(times[:, None] > 0, answer, probability)
        return probability.to(device)


def _appended(state: Read, ids: Tensor) -> Tensor:
    """The texts with more ids after what is real of them."""
    places = state.count[:, None] + torch.arange(ids.size(1), device=ids.device)
    return state.ids.scatter(1, places, ids)


def _numbered(key: Rows) -> Rows:
    """Small numbers, the same for the same key."""
    number: Rows = torch.unique(torch.from_numpy(key), return_inverse=True)[1].numpy()
    return number


def _before(key: Rows, counts: NDArray[np.bool_]) -> Rows:
    """At each place, how many of the places before it that count have the same key."""
    ordered, order = (t.numpy() for t in torch.sort(torch.from_numpy(key), stable=True))
    running = np.cumsum(counts[order]) - counts[order]
    begins = np.append(True, ordered[1:] != ordered[:-1])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(key)), 0))
    total = np.empty_like(running)
    total[order] = running - running[first]
    return total
