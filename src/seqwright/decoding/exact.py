"""Exact search: the best hypotheses there are, depth first with bounds (branch and bound).

For small cases, and for measuring what a beam misses (Stahlberg & Byrne 2019).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.constraints import Constraints
from seqwright.decoding.length_penalty import best_possible, normalize
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.processors import NOTHING, History, LogitsProcessors

AT_ONCE = 64
"""Children of a prefix that the model reads together, most probable first."""


@dataclass
class Found:
    """The best hypotheses, and what finding them took."""

    best: list[Hypothesis]
    nodes: int = 0
    """Prefixes that were expanded."""
    proven: bool = True
    """False where the search gave up: better hypotheses may exist."""


@dataclass(frozen=True)
class Prefix:
    """A prefix of hypotheses, and the distribution of its next id."""

    log_probs: Tensor  # (1, V)
    state: State
    ids: list[int]
    total: Tensor  # ()
    progress: Tensor | None  # (1, 1 + C) automaton states of forbidden and required phrases


@dataclass
class _Heap:
    """The best hypotheses by score, at most `size`."""

    size: int
    items: list[tuple[float, int, Hypothesis]] = field(default_factory=list)
    offers: int = 0

    @property
    def threshold(self) -> float:
        """The score that a new hypothesis must exceed."""
        return self.items[0][0] if len(self.items) == self.size else -torch.inf

    def offer(self, hypothesis: Hypothesis) -> None:
        self.offers += 1
        item = (hypothesis.score, -self.offers, hypothesis)  # of equals the later leaves first
        if len(self.items) < self.size:
            heapq.heappush(self.items, item)
        elif hypothesis.score > self.threshold:
            heapq.heapreplace(self.items, item)

    def ordered(self) -> list[Hypothesis]:
        return [item[2] for item in sorted(self.items, key=lambda item: -item[0])]


@torch.inference_mode()
def exact_search(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    prompt: Sequence[int],
    limit: int,
    processors: LogitsProcessors,
    constraints: Constraints | None = None,
    known: Sequence[Hypothesis] = (),
    on_node: Callable[[int], None] = lambda nodes: None,
) -> Found:
    """The best hypotheses of one source, at most `limit` tokens long; `known` ones, from a beam, tighten the bounds
    from the start. `on_node` is called with the number of nodes expanded so far."""
    search = _ExactSearch(model, options, processors, prompt, limit, constraints, on_node)
    for hypothesis in known:
        search.offer(hypothesis)
    ids = torch.tensor([list(prompt)], device=source.device)
    log_probs, state = model.step(ids, model.start(source, capacity=len(prompt) + limit - 1))
    first = None if constraints is None else constraints.first
    search.descend(Prefix(log_probs, state, [], log_probs.new_zeros(()), first))
    together = search.finished.ordered() + search.unfinished.ordered()
    if options.rank_unfinished == "among":
        together.sort(key=lambda hypothesis: -hypothesis.score)
    return Found(together[: options.n_best], search.nodes, search.proven)


class _ExactSearch:
    """Depth-first search with a bound on the score of every prefix."""

    def __init__(
        self,
        model: Autoregressive,
        options: SearchOptions,
        processors: LogitsProcessors,
        prompt: Sequence[int],
        limit: int,
        constraints: Constraints | None,
        on_node: Callable[[int], None],
    ):
        self.on_node = on_node
        self.model, self.options, self.processors, self.constraints = model, options, processors, constraints
        self.prompt, self.limit = list(prompt), limit
        self.finished, self.unfinished = _Heap(options.n_best), _Heap(options.n_best)
        self.seen: set[tuple[int, ...]] = set()
        self.nodes, self.proven = 0, True

    @property
    def threshold(self) -> float:
        """The score that a prefix must be able to exceed."""
        if self.options.rank_unfinished == "among":
            return max(self.finished.threshold, self.unfinished.threshold)
        return self.finished.threshold

    def offer(self, hypothesis: Hypothesis) -> None:
        if (key := (*hypothesis.ids, NOTHING if hypothesis.reason == "end" else NOTHING - 1)) not in self.seen:
            self.seen.add(key)
            (self.finished if hypothesis.reason == "end" else self.unfinished).offer(hypothesis)

    def descend(self, root: Prefix) -> None:
        """Depth first with an explicit stack: outputs may be longer than Python's stack is deep."""
        open_prefixes = [self._children(root)]
        while open_prefixes:
            child = next(open_prefixes[-1], None)
            if child is None:
                open_prefixes.pop()
            else:
                open_prefixes.append(self._children(child))

    def _children(self, prefix: Prefix) -> Iterator[Prefix]:
        """The continuations of a prefix that can still win when their turn comes."""
        if self.options.max_nodes is not None and self.nodes >= self.options.max_nodes:
            self.proven = False
            return
        self.nodes += 1
        self.on_node(self.nodes)
        eos, length = self.processors.eos, len(prefix.ids) + 1
        allowed = self._allowed(prefix, last=length == self.limit)
        totals = prefix.total + allowed[0].index_fill(0, self.processors.never(length - 1), -torch.inf)  # (V,)
        if eos != NOTHING:
            self._offer(prefix.ids, totals[eos], length, "end")
            totals[eos] = -torch.inf
        ordered, ids = totals.sort(descending=True, stable=True)
        if length == self.limit:
            self._cut_off(prefix, ids, ordered)
            return
        bounds = best_possible(ordered, length, self.limit, self.options).tolist()
        for first in range(0, len(bounds), AT_ONCE):
            part = [n for n in range(first, min(first + AT_ONCE, len(bounds))) if self._worth(bounds[n])]
            if not part:  # bounds fall along the order
                return
            yield from self._read(prefix, ids[part], ordered[part], [bounds[n] for n in part])

    def _allowed(self, prefix: Prefix, *, last: bool) -> Tensor:
        """Log-probabilities (1, V) under processors and constraints."""
        device, history = prefix.log_probs.device, None
        if self.processors.needs_history:
            tokens = torch.tensor([self.prompt + prefix.ids], device=device)
            history = History(tokens, tokens.new_tensor([tokens.size(1)]), tokens.new_tensor([len(self.prompt)]))
        log_probs = self.processors.constrain(prefix.log_probs, history)
        if self.constraints is None or prefix.progress is None:
            return log_probs
        marked = torch.tensor([last], device=device)
        return self.constraints.restrict(log_probs, prefix.progress, marked, self.processors.eos)

    def _after(self, prefix: Prefix, ids: Tensor) -> Tensor | None:
        """(N, 1 + C): the automaton states of a prefix after each of the ids (N,)."""
        if self.constraints is None or prefix.progress is None:
            return None
        return self.constraints.after(prefix.progress.expand(len(ids), -1), ids)

    def _cut_off(self, prefix: Prefix, ids: Tensor, totals: Tensor) -> None:
        """Offers the best hypotheses that reach the limit with all required phrases."""
        progress = self._after(prefix, ids)
        if self.constraints is not None and progress is not None:
            met = self.constraints.met(progress)
            ids, totals = ids[met], totals[met]
        for id, total in zip(ids[: self.options.n_best].tolist(), totals[: self.options.n_best], strict=True):
            self._offer([*prefix.ids, id], total, len(prefix.ids) + 1, "length")

    def _read(self, prefix: Prefix, ids: Tensor, totals: Tensor, bounds: list[float]) -> Iterator[Prefix]:
        """A prefix with each of the ids appended, read together."""
        rows = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
        log_probs, after = self.model.step(ids.unsqueeze(1), prefix.state.select(rows))
        progress = self._after(prefix, ids)
        for n, id in enumerate(ids.tolist()):
            if self._worth(bounds[n]):
                own, state = slice(n, n + 1), after.select(rows.new_tensor([n]))
                reached = None if progress is None else progress[own]
                yield Prefix(log_probs[own], state, [*prefix.ids, id], totals[n], reached)

    def _worth(self, bound: float) -> bool:
        return bound > self.threshold

    def _offer(self, ids: list[int], log_prob: Tensor, length: int, reason: str) -> None:
        if log_prob > -torch.inf:
            score = float(normalize(log_prob, length, self.options))
            self.offer(Hypothesis(ids=ids, log_prob=float(log_prob), score=score, reason=reason))
