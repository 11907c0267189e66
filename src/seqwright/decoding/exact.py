"""Exact search: the best hypotheses there are, depth first, leaving out what can no longer win.

For small cases, and for measuring what a beam misses (Stahlberg & Byrne 2019).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.bans import NOTHING, Rules
from seqwright.decoding.constraints import Constraints
from seqwright.decoding.length_penalty import best_possible, normalize
from seqwright.decoding.options import Hypothesis, SearchOptions

AT_ONCE = 64
"""Children of a prefix that the model reads together, most probable first."""


@dataclass
class Found:
    """The best so far, and what it took."""

    best: list[Hypothesis]
    nodes: int = 0
    """Prefixes whose next ids were looked at."""
    proven: bool = True
    """False where the search gave up: there may be better ones."""


@dataclass(frozen=True)
class Prefix:
    """Something said, and what the model answers to it."""

    log_probs: Tensor  # (1, V)
    state: State
    said: list[int]
    total: Tensor  # ()
    wished: Tensor | None  # (1, 1 + C) where it stands with what is forbidden and required


@dataclass
class _Heap:
    """The best few scores with their hypotheses."""

    size: int
    items: list[tuple[float, int, Hypothesis]] = field(default_factory=list)
    offers: int = 0

    @property
    def threshold(self) -> float:
        """What a newcomer must exceed."""
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
    most: int,
    rules: Rules,
    wishes: Constraints | None = None,
    known: Sequence[Hypothesis] = (),
) -> Found:
    """The best hypotheses of one source; `known` ones, from a beam, let it leave out more from the start."""
    search = _Exact(model, options, rules, prompt, most, wishes)
    for hypothesis in known:
        search.offer(hypothesis)
    ids = torch.tensor([list(prompt)], device=source.device)
    log_probs, state = model.step(ids, model.start(source, capacity=len(prompt) + most - 1))
    search.descend(Prefix(log_probs, state, [], log_probs.new_zeros(()), None if wishes is None else wishes.first))
    best = search.complete.ordered()
    cut = search.cut.ordered()
    together = sorted(best + cut, key=lambda h: -h.score) if options.rank_unfinished == "among" else best + cut
    return Found(together[: options.n_best], search.nodes, search.proven)


class _Exact:
    def __init__(
        self,
        model: Autoregressive,
        options: SearchOptions,
        rules: Rules,
        prompt: Sequence[int],
        most: int,
        wishes: Constraints | None,
    ):
        self.model, self.options, self.rules, self.wishes = model, options, rules, wishes
        self.prompt, self.most = list(prompt), most
        self.complete, self.cut = _Heap(options.n_best), _Heap(options.n_best)
        self.seen: set[tuple[int, ...]] = set()
        self.nodes, self.proven = 0, True

    @property
    def threshold(self) -> float:
        """What a prefix must be able to exceed."""
        if self.options.rank_unfinished == "among":
            return max(self.complete.threshold, self.cut.threshold)
        return self.complete.threshold

    def offer(self, hypothesis: Hypothesis) -> None:
        if (key := (*hypothesis.ids, NOTHING if hypothesis.reason == "end" else NOTHING - 1)) not in self.seen:
            self.seen.add(key)
            (self.complete if hypothesis.reason == "end" else self.cut).offer(hypothesis)

    def descend(self, root: Prefix) -> None:
        """Depth first; outputs may be longer than Python's own stack is deep."""
        open_prefixes = [self._children(root)]
        while open_prefixes:
            child = next(open_prefixes[-1], None)
            if child is None:
                open_prefixes.pop()
            else:
                open_prefixes.append(self._children(child))

    def _children(self, prefix: Prefix) -> Iterator[Prefix]:
        """Everything that may follow a prefix and can still win when its turn comes."""
        if self.options.max_nodes is not None and self.nodes >= self.options.max_nodes:
            self.proven = False
            return
        self.nodes += 1
        said, length = prefix.said, len(prefix.said) + 1
        restricted = self._restricted(prefix, last=length == self.most)
        totals = prefix.total + restricted[0].index_fill(0, self.rules.never(len(said)), -torch.inf)  # (V,)
        if self.rules.eos != NOTHING:
            self._offer(said, totals[self.rules.eos], length, "end")
            totals[self.rules.eos] = -torch.inf
        ordered, ids = totals.sort(descending=True, stable=True)
        if length == self.most:
            self._cut_off(prefix, ids, ordered)
            return
        bounds = best_possible(ordered, length, self.most, self.options).tolist()
        for first in range(0, len(bounds), AT_ONCE):
            part = [n for n in range(first, min(first + AT_ONCE, len(bounds))) if self._worth(bounds[n])]
            if not part:  # bounds fall along the order
                return
            yield from self._read(prefix, ids[part], ordered[part], [bounds[n] for n in part])

    def _restricted(self, prefix: Prefix, *, last: bool) -> Tensor:
        row = torch.tensor([self.prompt + prefix.said], device=prefix.log_probs.device)
        log_probs = self.rules.restrict(prefix.log_probs, row)
        if self.wishes is None or prefix.wished is None:
            return log_probs
        return self.wishes.restrict(log_probs, prefix.wished, row.new_tensor([last]).bool(), self.rules.eos)

    def _after(self, prefix: Prefix, ids: Tensor) -> Tensor | None:
        """(N, 1 + C): where a prefix stands with each of the ids (N,)."""
        if self.wishes is None or prefix.wished is None:
            return None
        return self.wishes.after(prefix.wished.expand(len(ids), -1), ids)

    def _cut_off(self, prefix: Prefix, ids: Tensor, totals: Tensor) -> None:
        """Offers the best that reach the cut-off with all that is required."""
        said, wished = prefix.said, self._after(prefix, ids)
        if self.wishes is not None and wished is not None:
            whole = self.wishes.whole(wished)
            ids, totals = ids[whole], totals[whole]
        for id, total in zip(ids[: self.options.n_best].tolist(), totals[: self.options.n_best], strict=True):
            self._offer([*said, id], total, len(said) + 1, "length")

    def _read(self, prefix: Prefix, ids: Tensor, totals: Tensor, bounds: list[float]) -> Iterator[Prefix]:
        """A prefix with each of the ids, read together."""
        rows = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
        log_probs, after = self.model.step(ids.unsqueeze(1), prefix.state.select(rows))
        wished = self._after(prefix, ids)
        for n, id in enumerate(ids.tolist()):
            if self._worth(bounds[n]):
                own, state = slice(n, n + 1), after.select(rows.new_tensor([n]))
                stands = None if wished is None else wished[own]
                yield Prefix(log_probs[own], state, [*prefix.said, id], totals[n], stands)

    def _worth(self, bound: float) -> bool:
        return bound > self.threshold

    def _offer(self, said: list[int], log_prob: Tensor, length: int, reason: str) -> None:
        if log_prob > -torch.inf:
            score = float(normalize(log_prob, length, self.options))
            self.offer(Hypothesis(ids=said, log_prob=float(log_prob), score=score, reason=reason))
