"""Beam search: the best few continuations of each source, for any autoregressive model, each source as if alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from seqwright.batch import Source
from seqwright.config import UserError
from seqwright.decoding.candidates import Candidates, by_banks, by_groups, stay
from seqwright.decoding.normalisation import best_possible, normalise
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.rules import NOTHING, Rules, met
from seqwright.decoding.trail import Trail
from seqwright.interface import Autoregressive, State, per_source

LOOK = 8
"""Steps between looks at a device for sources that are done; a CPU is looked at after every one."""
WORTH = 0.75
"""The share of a batch's sources still searched at which the others are dropped: dropping copies every state."""


@runtime_checkable
class Attentive(Protocol):
    """A model that can say how much its last step attended to each source position."""

    def attention(self, state: State) -> Tensor:
        """(R, S), each row summing to one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step of the search looked at, for those who listen."""

    sources: Tensor
    """(B,) numbers of the sources still in the batch; each has as many queues as there are groups."""
    candidates: Candidates
    ended: Tensor
    """(Q, C) those put aside as complete."""
    places: Tensor
    """(Q, C) the beam that each survivor takes; NOTHING for the others."""


@dataclass
class Beams(State):
    """What a search remembers beside the model's own state. Sources have G queues of K beams; queues come first."""

    totals: Tensor  # (Q, K) log-probabilities of the live hypotheses
    ids: Tensor  # (Q, K) what each said last
    pool: Tensor  # (Q, N) the best scores of those that ended
    done: Tensor  # (Q,)
    said: Tensor  # (Q, K, T) all ids read and said, padded on the left; T = 0 where no rule asks
    covered: Tensor  # (Q, K, S) attention that each source position has had; S = 0 where none is asked for
    source: Tensor = per_source()  # (B,) numbers
    most: Tensor = per_source()  # (B,) where each is cut off
    required: Tensor = per_source()  # (B, C, P) phrases
    mask: Tensor = per_source()  # (B, S)


@torch.inference_mode()
def beam_search(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    prompts: Sequence[Sequence[int]],
    most: Sequence[int],
    rules: Rules,
    required: Tensor | None = None,
    listen: Callable[[Step], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, each at most `most` tokens long; `listen` hears what every step looked at."""
    search = _Search(model, source, options, rules, prompts, most, required)
    for length in range(max(most)):
        found = search.candidates(length)
        ended = search.put_aside(found, length)
        parents, places = search.survive(found, length)
        if listen is not None:
            listen(Step(sources=search.live.source, candidates=found, ended=ended, places=places))
        if length + 1 == max(most) or not search.move(parents, length):
            break
        search.read()
    return search.trail.hypotheses(options)


class _Search:
    """A beam search under way."""

    def __init__(
        self,
        model: Autoregressive,
        source: Source,
        options: SearchOptions,
        rules: Rules,
        prompts: Sequence[Sequence[int]],
        most: Sequence[int],
        required: Tensor | None,
    ):
        if options.coverage and not isinstance(model, Attentive):
            raise UserError("this model does not say what it attends to; set coverage = 0.")
        if options.groups > 1 and required is not None:
            raise UserError("required words and groups cannot be had together; set groups = 1.")
        self.model, self.options, self.rules = model, options, rules
        self.constrained = required is not None
        self.remember = self.constrained or rules.no_repeat > 0 or rules.forbidden is not None
        self.beams = options.width // options.groups  # K
        self._read_prompts(source, prompts, max(most))
        self.trail = Trail(most, options.groups, self.beams, self.log_probs)
        self._begin(source, prompts, most, required)

    def _read_prompts(self, source: Source, prompts: Sequence[Sequence[int]], most: int) -> None:
        """One row for each source, then a beam of them."""
        device, width = source.device, max(map(len, prompts))
        ids = torch.tensor([[*p, *[p[-1]] * (width - len(p))] for p in prompts], device=device)
        ragged = min(map(len, prompts)) < width
        count = torch.tensor([len(p) for p in prompts], device=device) if ragged else None
        state = self.model.start(source, capacity=width + most - 1)
        log_probs, state = self.model.step(ids, state, count)
        fan = torch.arange(source.rows, device=device).repeat_interleave(self.options.width)
        self.state = state.select(fan)
        self.log_probs = log_probs.index_select(0, fan)  # (R, V)

    def _begin(
        self, source: Source, prompts: Sequence[Sequence[int]], most: Sequence[int], required: Tensor | None
    ) -> None:
        device, queues, width = source.device, source.rows * self.options.groups, max(map(len, prompts))
        totals = self.log_probs.new_full((queues, self.beams), -torch.inf)
        totals[:, 0] = 0  # the beams of a queue begin as one
        said = [[NOTHING] * (width - len(p)) + list(p) for p in prompts] if self.remember else [[]] * source.rows
        read = torch.tensor(said, dtype=torch.long, device=device).repeat_interleave(self.options.width, 0)
        self.live = Beams(
            totals=totals,
            ids=torch.zeros_like(totals, dtype=torch.long),
            pool=totals.new_full((queues, self.options.enough), -torch.inf),
            done=torch.zeros(queues, dtype=torch.bool, device=device),
            said=read.view(queues, self.beams, -1),
            covered=totals.new_zeros(queues, self.beams, source.mask.size(1) if self.options.coverage else 0),
            source=torch.arange(source.rows, device=device),
            most=torch.tensor(most, device=device),
            required=read.new_empty(source.rows, 0, 0) if required is None else required,
            mask=source.mask,
        )
        self._cover()

    def candidates(self, length: int) -> Candidates:
        """What may come next, after `length` ids."""
        live = self.live
        required = live.required if self.constrained else None
        never = self.rules.never(length)
        allowed = self.rules.restrict(self.log_probs, live.said.flatten(0, 1), length, required)
        if required is None:
            return by_groups(allowed, live.totals, never, self.options.groups, self.options.diversity)
        own = live.said[..., live.said.size(-1) - length :]
        return by_banks(allowed, live.totals, own, required, never, self.rules.eos)

    def put_aside(self, found: Candidates, length: int) -> Tensor:
        """What ended among the first K candidates is kept: an end that does not make the beam is none."""
        live, first = self.live, slice(self.beams)
        ended = (found.ids == self.rules.eos) & (found.log_probs > -torch.inf) & ~live.done.unsqueeze(1)
        ended[:, self.beams :] = False
        parents = found.parents[:, first]
        log_probs = found.log_probs[:, first].masked_fill(~ended[:, first], -torch.inf)
        scores = normalise(log_probs, length + 1, self.options)
        if self.options.coverage:
            scores = scores + self._coverage().gather(1, parents)
        self.trail.end(self._queues(), length, log_probs, scores, parents)
        live.pool = torch.cat([live.pool, scores], 1).topk(live.pool.size(1)).values
        return ended

    def survive(self, found: Candidates, length: int) -> tuple[Tensor, Tensor]:
        """The first K candidates that do not end become the beams; their parents (Q, K), and all places (Q, C)."""
        live = self.live
        ends = found.ids == self.rules.eos
        going = ends.long().argsort(dim=1, stable=True)[:, : self.beams]  # (Q, K)
        places = stay(found.parents.gather(1, going))
        parents, live.ids, live.totals = (
            torch.empty_like(places, dtype=x.dtype).scatter(1, places, x.gather(1, going))
            for x in (found.parents, found.ids, found.log_probs.masked_fill(ends, -torch.inf))
        )
        queues, most = self._queues(), live.most.repeat_interleave(self.options.groups)
        if self.remember:
            past = live.said.gather(1, parents.unsqueeze(-1).expand_as(live.said))
            live.said = torch.cat([past, live.ids.unsqueeze(-1)], -1)
        if self.options.coverage:
            live.covered = live.covered.gather(1, parents.unsqueeze(-1).expand_as(live.covered))
        self.trail.grow(queues, length, parents, live.ids)
        self.trail.cut(queues, self._presentable(length + 1), (most == length + 1) & ~live.done)
        live.done = live.done | self._over(length + 1, most)
        return parents, torch.full_like(found.ids, NOTHING).scatter(1, going, places)

    def _presentable(self, length: int) -> Tensor:
        """Totals (Q, K) without hypotheses that lack a required phrase, where others of the queue have them all."""
        if not self.constrained:
            return self.live.totals
        own = self.live.said[..., self.live.said.size(-1) - length :]
        whole = met(own, self.live.required).all(-1) & (self.live.totals > -torch.inf)  # (Q, K)
        return self.live.totals.masked_fill(~whole & whole.any(1, keepdim=True), -torch.inf)

    def _over(self, length: int, most: Tensor) -> Tensor:
        """Queues (Q,) that need not go on."""
        best, worst = self.live.totals.amax(1), self.live.pool[:, -1]
        match self.options.stop:
            case "finished":
                over = worst > -torch.inf
            case "bound":
                over = best_possible(best, length, most, self.options) <= worst
            case "now":
                over = normalise(best, length, self.options) <= worst
        return over | (best == -torch.inf) | (most <= length)

    def move(self, parents: Tensor, length: int) -> bool:
        """Brings the model's state to the survivors, without sources that are done; False where none is left."""
        first = torch.arange(len(parents), device=parents.device).unsqueeze(1) * self.beams
        rows = (first + parents).view(-1, self.options.width)  # (B, W)
        if rows.device.type == "cpu" or (length + 1) % LOOK == 0:
            by_source = self.live.done.view(len(rows), -1)  # (B, G)
            kept = (~by_source.all(1)).nonzero().squeeze(1)
            if len(kept) == 0:
                return False
            if len(kept) <= WORTH * len(rows):
                queues = torch.arange(by_source.numel(), device=kept.device).view_as(by_source)[kept]
                self.live = self.live.select(queues.flatten(), kept)
                self.state = self.state.select(rows[kept].flatten(), kept)
                return True
        self.state = self.state.reorder(rows.flatten())
        return True

    def read(self) -> None:
        """The model reads what each beam said."""
        self.log_probs, self.state = self.model.step(self.live.ids.view(-1, 1), self.state)
        self._cover()

    def _cover(self) -> None:
        if self.options.coverage:
            assert isinstance(self.model, Attentive)
            self.live.covered = self.live.covered + self.model.attention(self.state).view_as(self.live.covered)

    def _coverage(self) -> Tensor:
        """(Q, K): β Σ log min(attention that a source position had, 1), at most 0 (Wu et al. 2016)."""
        mask = self.live.mask.repeat_interleave(self.options.groups, 0).unsqueeze(1)
        return self.options.coverage * self.live.covered.clamp(max=1).log().masked_fill(~mask, 0).sum(-1)

    def _queues(self) -> Tensor:
        """Numbers (Q,) of the queues still in the batch."""
        groups = torch.arange(self.options.groups, device=self.live.source.device)
        return (self.live.source.unsqueeze(1) * self.options.groups + groups).flatten()
