"""Beam search: the best few continuations of each source, for any autoregressive model, each source as if alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State, per_source
from seqwright.decoding.attention_recorder import Attended, Attending
from seqwright.decoding.backpointers import BackPointers
from seqwright.decoding.bans import NOTHING, Rules
from seqwright.decoding.candidates import Candidates, by_banks, by_groups
from seqwright.decoding.constraints import Constraints
from seqwright.decoding.cuda_graph import Captured
from seqwright.decoding.length_penalty import best_possible, normalize
from seqwright.decoding.options import Hypothesis, SearchOptions

LOOK = 8
"""Steps between looks at a device for sources that are done; a CPU is looked at after every one."""
WORTH = 0.75
"""The share of a batch's sources still searched at which the others are dropped: dropping copies every state."""
WORTH_CAPTURING = 0.25
"""The same where steps are captured: smaller ones have to be captured anew, and cost a device hardly less."""
STEADY = 64
"""Steps for which a state is brought to shapes that stay: with fewer they are captured more often, with more they read
more slots that are yet empty or that no beam sees any more."""
CAPTURED = {"cuda"}
"""Kinds of devices on which the steps of a model whose states are steady are captured."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step of the search looked at, for those who listen."""

    queues: Tensor
    """(Q,) numbers of the queues still in the batch; each source has as many as there are groups."""
    candidates: Candidates
    ended: Tensor
    """(Q, C) those put aside as complete."""
    places: Tensor
    """(Q, C) the beam that each survivor takes; NOTHING for the others."""


@dataclass
class Beams(State):
    """What a search remembers beside the model's own state. Sources have G queues of K beams; queues come first."""

    queue: Tensor  # (Q,) numbers
    most: Tensor  # (Q,) where each is cut off
    totals: Tensor  # (Q, K) log-probabilities of the live hypotheses
    parents: Tensor  # (Q, K) the beams they continue, whose place in the model's state they have yet to take
    ids: Tensor  # (Q, K) what each said last
    pool: Tensor  # (Q, N) the best scores of those that ended
    done: Tensor  # (Q,)
    said: Tensor  # (Q, K, T) all ids read and said, padded on the left; T = 0 where no rule asks
    covered: Tensor  # (Q, K, S) attention that each source position has had; S = 0 where none is asked for
    wished: Tensor  # (Q, K, 1 + C) where each stands with what is forbidden and required; no column where nothing is
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
    wishes: Constraints | None = None,
    listen: Callable[[Step], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, each at most `most` tokens long; `listen` hears what every step looked at."""
    search = _Search(model, source, options, rules, prompts, most, wishes, listen)
    while search.length < max(most) and search.drop():
        search.go_on()
    return search.trail.hypotheses(options)


class _Search:
    """A beam search under way: what may come first is chosen, then the model reads it and the next is chosen.

    A step leaves every shape as it was between two drops, and reads no number from the device, so that where the
    model's state is steady too, it can be captured.
    """

    def __init__(
        self,
        model: Autoregressive,
        source: Source,
        options: SearchOptions,
        rules: Rules,
        prompts: Sequence[Sequence[int]],
        most: Sequence[int],
        wishes: Constraints | None,
        listen: Callable[[Step], None] | None,
    ):
        self.constrained = wishes is not None and wishes.first.size(1) > 1
        if options.beam_groups > 1 and self.constrained:
            raise UserError("required words and groups cannot be had together; set groups = 1.")
        self.model: Autoregressive = Attending(model) if options.coverage_penalty else model
        self.options, self.rules, self.wishes, self.listen = options, rules, wishes, listen
        self.beams = options.beam_size // options.beam_groups  # K
        self.length = 1
        """How many ids each beam has said, the one being chosen included."""
        # The same for the device. A float64 without axes counts as a number: scores keep their own precision.
        self.place = torch.ones((), dtype=torch.float64, device=source.device)
        log_probs = self._read_prompts(source, prompts, max(most))
        self.trail = BackPointers(most, options.beam_groups, self.beams, log_probs)
        self._begin(source, prompts, most, log_probs)
        self._cover()
        self._choose(log_probs)
        self.captured: Captured | None = None
        self.steady = self._hold_steady()

    def _read_prompts(self, source: Source, prompts: Sequence[Sequence[int]], most: int) -> Tensor:
        """One row for each source, then a beam of them; log-probabilities (R, V) of what may come first."""
        device, width = source.device, max(map(len, prompts))
        ids = torch.tensor([[*p, *[p[-1]] * (width - len(p))] for p in prompts], device=device)
        ragged = min(map(len, prompts)) < width
        count = torch.tensor([len(p) for p in prompts], device=device) if ragged else None
        state = self.model.start(source, capacity=width + most - 1)
        log_probs, state = self.model.step(ids, state, count)
        fan = torch.arange(source.rows, device=device).repeat_interleave(self.options.beam_size)
        self.state = state.select(fan)
        return log_probs.index_select(0, fan)

    def _begin(self, source: Source, prompts: Sequence[Sequence[int]], most: Sequence[int], like: Tensor) -> None:
        device, queues, width = source.device, source.rows * self.options.beam_groups, max(map(len, prompts))
        totals = like.new_full((queues, self.beams), -torch.inf)
        totals[:, 0] = 0  # the beams of a queue begin as one
        said = (
            [[NOTHING] * (width - len(p)) + list(p) for p in prompts]
            if self.rules.no_repeat_ngram
            else [[]] * source.rows
        )
        read = torch.tensor(said, dtype=torch.long, device=device).repeat_interleave(self.options.beam_size, 0)
        first = torch.zeros_like(totals, dtype=torch.long)
        wished = read.new_empty(source.rows, 0) if self.wishes is None else self.wishes.first
        self.live = Beams(
            queue=torch.arange(queues, device=device),
            most=torch.tensor(most, device=device).repeat_interleave(self.options.beam_groups),
            totals=totals,
            parents=first,
            ids=first,
            pool=totals.new_full((queues, self.options.enough), -torch.inf),
            done=torch.zeros(queues, dtype=torch.bool, device=device),
            said=read.view(queues, self.beams, -1),
            covered=totals.new_zeros(queues, self.beams, source.mask.size(1) if self.options.coverage_penalty else 0),
            wished=wished.repeat_interleave(self.options.beam_size, 0).view(queues, self.beams, -1),
            mask=source.mask,
        )

    def _hold_steady(self) -> bool:
        """Whether steps can be captured; if so, the model's state is brought to shapes that stay for some of them."""
        watched = (
            self.rules.no_repeat_ngram
            or self.wishes is not None
            or self.options.coverage_penalty
            or self.listen is not None
        )
        if self.place.device.type not in CAPTURED or watched:
            return False
        self.captured, self.until = None, min(self.length + STEADY, max(self.trail.most))
        state = self.state.static(max(1, self.until - self.length))
        self.state = state or self.state
        return state is not None

    def go_on(self) -> None:
        """The model reads what each beam said, and what may come next is chosen."""
        if self.steady and self.length == self.until:
            self._hold_steady()
        self.length += 1
        if not self.steady:
            self._step()
            return
        if self.length == self.rules.min_tokens + 1:  # from here on hypotheses may end
            self.captured = None
        self.captured = self.captured or Captured(self._step_in_place, self.place.device)
        self.captured()

    def _step(self) -> None:
        self.place += 1
        self.state = self.state.reorder(self._rows().flatten())
        log_probs, self.state = self.model.step(self.live.ids.view(-1, 1), self.state)
        self._cover()
        self._choose(log_probs)

    def _step_in_place(self) -> None:
        """A step that leaves every tensor where it was."""
        state, live = self.state, self.live
        self.live = replace(live)
        self._step()
        self.state, self.live = state.copy_(self.state), live.copy_(self.live)

    def _choose(self, log_probs: Tensor) -> None:
        """Of what may come next, what ends is put aside, and the best others are the new beams."""
        found = self._candidates(log_probs)
        ended = self._put_aside(found)
        going = self._survive(found)
        if self.listen is not None:
            beams = torch.arange(self.beams, device=going.device).expand_as(going)
            places = torch.full_like(found.ids, NOTHING).scatter(1, going, beams)
            self.listen(Step(queues=self.live.queue, candidates=found, ended=ended, places=places))

    def _candidates(self, log_probs: Tensor) -> Candidates:
        live, never = self.live, self.rules.never(self.length - 1)
        allowed = self.rules.restrict(log_probs, live.said.flatten(0, 1))
        if self.wishes is not None:
            last = (live.most == self.place).repeat_interleave(self.beams)
            allowed = self.wishes.restrict(allowed, live.wished.flatten(0, 1), last, self.rules.eos)
        if self.wishes is None or not self.constrained:
            return by_groups(allowed, live.totals, never, self.options.beam_groups, self.options.diversity_penalty)
        return by_banks(allowed, live.totals, live.wished, self.wishes, never, self.rules.eos)

    def _put_aside(self, found: Candidates) -> Tensor:
        """What ended among the first K candidates is kept: an end that does not make the beam is none."""
        live, first = self.live, slice(self.beams)
        among = torch.arange(found.ids.size(1), device=found.ids.device) < self.beams
        ended = (found.ids == self.rules.eos) & (found.log_probs > -torch.inf) & ~live.done.unsqueeze(1) & among
        parents = found.parents[:, first]
        log_probs = found.log_probs[:, first].masked_fill(~ended[:, first], -torch.inf)
        scores = normalize(log_probs, self.place, self.options)
        if self.options.coverage_penalty:
            scores = scores + self._coverage().gather(1, parents)
        self.trail.end(live.queue, self.place, log_probs, scores, parents)
        live.pool = torch.cat([live.pool, scores], 1).topk(live.pool.size(1)).values
        return ended

    def _survive(self, found: Candidates) -> Tensor:
        """The first K candidates that do not end become the beams, in this order: (Q, K)."""
        live = self.live
        ends = found.ids == self.rules.eos
        going = ends.long().argsort(dim=1, stable=True)[:, : self.beams]  # (Q, K)
        live.parents, live.ids, live.totals = (
            x.gather(1, going) for x in (found.parents, found.ids, found.log_probs.masked_fill(ends, -torch.inf))
        )
        if self.wishes is not None:
            live.wished = self.wishes.after(self._inherited(live.wished), live.ids)
        if self.rules.no_repeat_ngram:
            live.said = torch.cat([self._inherited(live.said), live.ids.unsqueeze(-1)], -1)
        if self.options.coverage_penalty:
            live.covered = self._inherited(live.covered)
        self.trail.grow(live.queue, self.place, live.parents, live.ids)
        self.trail.cut(live.queue, self._presentable(), (live.most == self.place) & ~live.done)
        live.done = live.done | self._over()
        return going

    def _inherited(self, own: Tensor) -> Tensor:
        """What the parents of the beams had, (Q, K, …)."""
        return own.gather(1, self.live.parents.unsqueeze(-1).expand_as(own))

    def _presentable(self) -> Tensor:
        """Totals (Q, K) without hypotheses that lack a required phrase, where others of the queue have them all."""
        if self.wishes is None or not self.constrained:
            return self.live.totals
        whole = self.wishes.whole(self.live.wished) & (self.live.totals > -torch.inf)  # (Q, K)
        return self.live.totals.masked_fill(~whole & whole.any(1, keepdim=True), -torch.inf)

    def _over(self) -> Tensor:
        """Queues (Q,) that need not go on."""
        best, worst, most = self.live.totals.amax(1), self.live.pool[:, -1], self.live.most
        match self.options.stopping:
            case "finished":
                over = worst > -torch.inf
            case "bound":
                over = best_possible(best, self.place, most, self.options) <= worst
            case "now":
                over = normalize(best, self.place, self.options) <= worst
        return over | (best == -torch.inf) | (most <= self.place)

    def drop(self) -> bool:
        """Leaves out sources that are done where enough of them are; False where no other is left."""
        done = self.live.done.view(-1, self.options.beam_groups)  # (B, G)
        if done.device.type != "cpu" and self.length % LOOK:
            return True
        kept = (~done.all(1)).nonzero().squeeze(1)
        if 0 < len(kept) <= (WORTH_CAPTURING if self.steady else WORTH) * len(done):
            queues = torch.arange(done.numel(), device=done.device).view_as(done)[kept]
            self.state = self.state.select(self._rows()[kept].flatten(), kept)
            self.live = self.live.select(queues.flatten(), kept)
            self.live.parents = torch.arange(self.beams, device=kept.device).expand_as(self.live.parents).clone()
            self._hold_steady()
        return len(kept) > 0

    def _rows(self) -> Tensor:
        """(B, W): the rows of the model's state that the beams continue."""
        parents = self.live.parents
        first = torch.arange(len(parents), device=parents.device).unsqueeze(1) * self.beams
        return (first + parents).view(-1, self.options.beam_size)

    def _cover(self) -> None:
        if self.options.coverage_penalty:
            assert isinstance(self.state, Attended)
            self.live.covered = self.live.covered + self.state.weights.view_as(self.live.covered)

    def _coverage(self) -> Tensor:
        """(Q, K): β Σ log min(attention that a source position had, 1), at most 0 (Wu et al. 2016)."""
        mask = self.live.mask.repeat_interleave(self.options.beam_groups, 0).unsqueeze(1)
        return self.options.coverage_penalty * self.live.covered.clamp(max=1).log().masked_fill(~mask, 0).sum(-1)
