"""Beam search: the best hypotheses of each source, for any autoregressive model, each source as if alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from seqwright.core.batch import Source
from seqwright.core.cuda_graph import Captured, HostCopy
from seqwright.core.protocols import Autoregressive
from seqwright.decoding import fused_choice
from seqwright.decoding.attention_recorder import AttendedState, RecordingModel
from seqwright.decoding.backpointers import BackPointers
from seqwright.decoding.candidates import Candidates, diverse_candidates, required_candidates
from seqwright.decoding.constraints import Constraints
from seqwright.decoding.kept import Entry, keep, layout, moved, on_device, take
from seqwright.decoding.length_penalty import best_possible, normalize
from seqwright.decoding.live_beams import Beams
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.prefill import prefill
from seqwright.decoding.processors import NOTHING, History, LogitsProcessors

LOOK_EVERY = 8
"""Steps between looks at a device for finished sources; a CPU is looked at after every step."""
COMPACT = 0.75
"""The share of a batch's sources still searched at which the others are dropped: dropping copies every state."""
COMPACT_CAPTURED = 0.25
"""The same where steps are captured: smaller shapes are captured anew, and cost a device hardly less."""
STATIC_STEPS = 128
"""Steps for which a state gets static shapes: with fewer, steps are captured more often; with more, attention reads
more slots that no beam sees any more."""
CAPTURED = {"cuda"}
"""Devices on which the steps of a model with static states are captured."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The candidates of one step, for callbacks."""

    groups: Tensor
    """(Q,) numbers of the groups still searched; each source has `beam_groups` of them."""
    candidates: Candidates
    finished: Tensor
    """(Q, C) those that ended here."""
    beams: Tensor
    """(Q, C) the beam that each survivor becomes; NOTHING for the others."""


@torch.inference_mode()
def beam_search(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    processors: LogitsProcessors,
    constraints: Constraints | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, each at most `limits[n]` tokens long; `on_step` is called at every step."""
    search = _BeamSearch(model, source, options, processors, prompts, limits, constraints, on_step)
    while search.length < max(limits) and search.compact():
        search.advance()
    search.keep_captured()
    return search.back_pointers.hypotheses(options)


class _BeamSearch:
    """A beam search under way.

    Between two compactions a step leaves every shape as it was and reads nothing from the device, so that it can be
    captured where the model's state is static, too.
    """

    def __init__(
        self,
        model: Autoregressive,
        source: Source,
        options: SearchOptions,
        processors: LogitsProcessors,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        constraints: Constraints | None,
        on_step: Callable[[Step], None] | None,
    ):
        self.requiring = constraints is not None and constraints.first.size(1) > 1
        self.model: Autoregressive = RecordingModel(model) if options.coverage_penalty else model
        self.options, self.processors, self.constraints, self.on_step = options, processors, constraints, on_step
        self.beams = options.beam_size // options.beam_groups  # K
        self.length = 1
        """Length of the live hypotheses, the id being chosen included."""
        # The same on the device. A float64 without axes counts as a number: scores keep their own precision.
        self.place = torch.ones((), dtype=torch.float64, device=source.device)
        if source.device.type in CAPTURED:  # captured steps may outlive this search, and their tensors with them
            source = source.select(torch.arange(source.rows, device=source.device))
        log_probs = self._read_prompts(source, prompts, max(limits))
        self.vocabulary = log_probs.size(-1)
        self.back_pointers = BackPointers(limits, options.beam_groups, self.beams, log_probs)
        basic = self._is_basic and not self._may_block(2 * self.beams)
        self.fused = basic and fused_choice.covers(log_probs, options, processors)
        """Whether kernels of our own choose the beams, in place."""
        self._start(source, prompts, limits, log_probs)
        self._cover()
        self._choose(log_probs)
        self.looking: HostCopy | None = None
        """Groups that are over, on their way to the host."""
        self.captured: Captured | None = None
        self.static = self._make_static()

    def _read_prompts(self, source: Source, prompts: Sequence[Sequence[int]], limit: int) -> Tensor:
        """Prefills one row for each source, then expands it to the beam: log-probabilities (R, V) of the first id."""
        device, width = source.device, max(map(len, prompts))
        ids = torch.tensor([[*p, *[p[-1]] * (width - len(p))] for p in prompts], device=device)
        ragged = min(map(len, prompts)) < width
        count = torch.tensor([len(p) for p in prompts], device=device) if ragged else None
        capacity = width + limit - 1
        if source.mask.size(1) == 0:
            captures = device.type in CAPTURED
            log_probs, state = prefill(self.model, ids, count, capacity=capacity, captures=captures)
        else:
            log_probs, state = self.model.step(ids, self.model.start(source, capacity=capacity), count)
        rows = torch.arange(source.rows, device=device).repeat_interleave(self.options.beam_size)
        self.state = state.select(rows)
        return log_probs.index_select(0, rows)

    def _start(self, source: Source, prompts: Sequence[Sequence[int]], limits: Sequence[int], like: Tensor) -> None:
        device, groups = source.device, source.rows * self.options.beam_groups
        totals = like.new_full((groups, self.beams), -torch.inf)
        totals[:, 0] = 0  # the beams of a group begin as one
        first = torch.zeros_like(totals, dtype=torch.long)
        self.longest_prompt = max(map(len, prompts))
        history = History.of(prompts if self.processors.needs_history else [[]] * source.rows, device)
        progress = first.new_empty(source.rows, 0) if self.constraints is None else self.constraints.first
        positions = source.mask.size(1) if self.options.coverage_penalty else 0
        self.live = Beams(
            group=torch.arange(groups, device=device),
            limit=torch.tensor(limits, device=device).repeat_interleave(self.options.beam_groups),
            totals=totals,
            rows=first.clone(),
            ids=first,
            pool=totals.new_full((groups, self.options.enough), -torch.inf),
            done=torch.zeros(groups, dtype=torch.bool, device=device),
            tokens=self._by_beam(history.tokens),
            covered=totals.new_zeros(groups, self.beams, positions),
            progress=self._by_beam(progress),
            prompt=history.length.repeat_interleave(self.options.beam_groups),
            mask=source.mask,
        )

    def _by_beam(self, rows: Tensor) -> Tensor:
        """(Q, K, …) from one row for each source."""
        groups = len(rows) * self.options.beam_groups
        return rows.repeat_interleave(self.options.beam_size, 0).view(groups, self.beams, *rows.shape[1:])

    @property
    def _is_basic(self) -> bool:
        """Whether beams are chosen by their log-probabilities alone, and nobody looks at a step."""
        more = self.constraints is not None or self.options.coverage_penalty or self.on_step is not None
        return not (more or self.processors.needs_history)

    def _make_static(self) -> bool:
        """Whether steps can be captured; if so, the model's state gets static shapes for some of them."""
        if self.place.device.type not in CAPTURED or not self._is_basic:
            return False
        self.keep_captured()
        self.captured, self.until = None, min(self.length + STATIC_STEPS, max(self.back_pointers.limits))
        state = self.state.static(max(1, self.until - self.length))
        self.state = state or self.state
        if state is not None:
            self._take_captured()
        return state is not None

    def _take_captured(self) -> None:
        """Moves to the tensors of a search of the same shapes that was captured before, and replays its step."""
        if self.processors.min_tokens:  # whose first steps are another graph
            return
        kept = take(self.model, self._kept_as)
        if kept is None:
            return
        self.captured = Captured.again(self._step_in_place, self.place.device, kept.value)
        self.state = moved("state.", self.state, kept.tensors)
        self.live = moved("live.", self.live, kept.tensors)
        for name, tensor in self.back_pointers.tables():
            setattr(self.back_pointers, name, kept.tensors[f"back_pointers.{name}"].copy_(tensor))
        self.place = kept.tensors["place"].copy_(self.place)
        self.processors = replace(self.processors, banned=kept.tensors["banned"])  # of the same ids

    def keep_captured(self) -> None:
        """Keeps the captured step for a later search; this one must not step any more, or take it again."""
        if self.captured is not None and self.captured.calls > 1 and not self.processors.min_tokens:
            keep(self.model, self._kept_as, Entry(self.captured.graph, self._tensors()), self.place.device)
            self.captured = None

    @property
    def _kept_as(self) -> Hashable:
        fixed = self.options, self.processors.eos, self.processors.banned_ids, self.fused, self.state.captured_as()
        return "search", str(self.place.device), *fixed, layout(self._tensors())

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that a captured step reads and writes besides weights."""
        tables = {f"back_pointers.{name}": table for name, table in self.back_pointers.tables()}
        numbers = {"place": self.place, "banned": self.processors.banned}
        return on_device("state.", self.state) | on_device("live.", self.live) | tables | numbers

    def advance(self) -> None:
        """The model reads the last id of each beam, and the next ones are chosen."""
        if self.static and self.length == self.until:
            self._make_static()
        self.length += 1
        if self.back_pointers.reserve(self.length):
            self.captured = None
        if not self.static:
            self._step()
            return
        if self.length == self.processors.min_tokens + 1:  # from here on hypotheses may end: another graph
            self.captured = None
        self.captured = self.captured or Captured(self._step_in_place, self.place.device, outlives=True)
        self.captured()
        self.state.count_steps(1)

    def _step(self) -> None:
        self.place += 1
        self.state = self.state.reorder(self.live.rows.flatten())
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
        """Finished candidates go to the pool, the best others are the new beams."""
        if self.fused:
            never, eos = self.processors.never(self.length - 1), self.processors.eos
            fused_choice.choose(log_probs, self.live, self.back_pointers, self.place, never, eos, self.options)
            return
        candidates = self._candidates(log_probs)
        finished = self._finish(candidates)
        survivors = self._survive(candidates)
        if self.on_step is not None:
            numbers = torch.arange(self.beams, device=survivors.device).expand_as(survivors)
            beams = torch.full_like(candidates.ids, NOTHING).scatter(1, survivors, numbers)
            self.on_step(Step(groups=self.live.group, candidates=candidates, finished=finished, beams=beams))

    def _candidates(self, log_probs: Tensor) -> Candidates:
        live, options, never = self.live, self.options, self.processors.never(self.length - 1)
        allowed = self.processors.constrain(log_probs, self._history())
        if self.constraints is not None:
            last = (live.limit == self.place).repeat_interleave(self.beams)
            allowed = self.constraints.restrict(allowed, live.progress.flatten(0, 1), last, self.processors.eos)
        if self.constraints is None or not self.requiring:
            return diverse_candidates(allowed, live.totals, never, options.beam_groups, options.diversity_penalty)
        return required_candidates(allowed, live.totals, live.progress, self.constraints, never, self.processors.eos)

    def _history(self) -> History | None:
        """The tokens of every beam, where a processor needs them."""
        if not self.processors.needs_history:
            return None
        prompt = self.live.prompt.repeat_interleave(self.beams)
        return History(self.live.tokens.flatten(0, 1), prompt + self.length - 1, prompt)

    def _finish(self, candidates: Candidates) -> Tensor:
        """(Q, C): which of the first K candidates end in <eos>; an end that does not make the beam is none."""
        live, first = self.live, slice(self.beams)
        among = torch.arange(candidates.ids.size(1), device=candidates.ids.device) < self.beams
        finished = (candidates.ids == self.processors.eos) & (candidates.log_probs > -torch.inf)
        finished = finished & ~live.done.unsqueeze(1) & among
        parents = candidates.parents[:, first]
        log_probs = candidates.log_probs[:, first].masked_fill(~finished[:, first], -torch.inf)
        scores = normalize(log_probs, self.place, self.options)
        if self.options.coverage_penalty:
            scores = scores + self._coverage().gather(1, parents)
        self.back_pointers.finish(live.group, self.place, log_probs, scores, parents)
        live.pool = torch.cat([live.pool, scores], 1).topk(live.pool.size(1)).values
        return finished

    def _survive(self, candidates: Candidates) -> Tensor:
        """(Q, K): the first K candidates that do not end, which become the beams in this order."""
        live = self.live
        ends = candidates.ids == self.processors.eos
        survivors = ends.long().argsort(dim=1, stable=True)[:, : self.beams]  # (Q, K)
        totals = candidates.log_probs.masked_fill(ends, -torch.inf)
        if self._may_block(totals.size(1)):
            blocked = (totals.amax(1) == -torch.inf) & (live.pool.amax(1) == -torch.inf) & ~live.done
            self.back_pointers.cut(live.group, self.place - 1, live.totals, blocked)
        else:
            blocked = torch.zeros_like(live.done)
        parents, live.ids, live.totals = (x.gather(1, survivors) for x in (candidates.parents, candidates.ids, totals))
        live.rows = live.first_rows + parents
        if self.constraints is not None:
            live.progress = self.constraints.after(_inherited(live.progress, parents), live.ids)
        if self.processors.needs_history:
            place = (live.prompt + self.length - 1).view(-1, 1, 1).expand(-1, self.beams, 1)
            needed, room = self.longest_prompt + self.length, live.tokens.size(2)
            if needed > room:
                live.tokens = pad(live.tokens, (0, 2 * needed - room), value=NOTHING)
            live.tokens = _inherited(live.tokens, parents).scatter(2, place, live.ids.unsqueeze(-1))
        if self.options.coverage_penalty:
            live.covered = _inherited(live.covered, parents)
        self.back_pointers.grow(live.group, self.place, parents, live.ids)
        at_limit = (live.limit == self.place) & ~live.done & ~blocked
        self.back_pointers.cut(live.group, self.place, self._presentable(), at_limit)
        live.done = live.done | self._over()
        return survivors

    def _may_block(self, candidates: int) -> bool:
        """Whether nothing may follow while nothing is finished: every n-gram would repeat, phrases are required, or the
        candidates are all there are. Then the beams end as they are."""
        if not isinstance(self.model, nn.Module):  # counted models have probabilities of zero, networks do not
            return True
        constrained = self.processors.needs_history or self.constraints is not None
        return constrained or self.vocabulary <= candidates + len(self.processors.unfinished)

    def _presentable(self) -> Tensor:
        """Totals (Q, K) without hypotheses that lack a required phrase, where others of the group have them all."""
        if self.constraints is None or not self.requiring:
            return self.live.totals
        met = self.constraints.met(self.live.progress) & (self.live.totals > -torch.inf)  # (Q, K)
        return self.live.totals.masked_fill(~met & met.any(1, keepdim=True), -torch.inf)

    def _over(self) -> Tensor:
        """(Q,): groups that need no further step."""
        best, worst, limit = self.live.totals.amax(1), self.live.pool[:, -1], self.live.limit
        match self.options.stopping:
            case "finished":
                over = worst > -torch.inf
            case "bound":
                over = best_possible(best, self.place, limit, self.options) <= worst
            case "now":
                over = normalize(best, self.place, self.options) <= worst
        return over | (best == -torch.inf) | (limit <= self.place)

    def compact(self) -> bool:
        """Drops finished sources where enough of them are; False where no other is left."""
        done = self._look()
        if done is None:
            return True
        kept = (~done.all(1)).nonzero().squeeze(1)
        if 0 < len(kept) <= (COMPACT_CAPTURED if self.static else COMPACT) * len(done):
            self.keep_captured()
            self.looking, kept = None, kept.to(self.place.device)
            groups = torch.arange(done.numel(), device=kept.device).view_as(done)[kept]
            rows = self.live.rows.view(-1, self.options.beam_size)
            self.state = self.state.select(rows[kept].flatten(), kept)
            self.live = self.live.select(groups.flatten(), kept)
            self.live.rows = torch.arange(self.live.rows.numel(), device=kept.device).view_as(self.live.rows)
            self._make_static()
        return len(kept) > 0

    def _look(self) -> Tensor | None:
        """(B, G) of the host: the groups that are over; None where it does not look now. On a device what the last look
        asked for, which has arrived meanwhile, so that the host never waits with nothing launched."""
        done = self.live.done.view(-1, self.options.beam_groups)
        if done.device.type == "cpu":
            return done
        if self.length % LOOK_EVERY:
            return None
        asked, self.looking = self.looking, HostCopy(done)
        return None if asked is None else asked.wait()

    def _cover(self) -> None:
        if self.options.coverage_penalty:
            assert isinstance(self.state, AttendedState)
            self.live.covered = self.live.covered + self.state.weights.view_as(self.live.covered)

    def _coverage(self) -> Tensor:
        """(Q, K): β Σ log min(attention that a source position had, 1), at most 0 (Wu et al. 2016)."""
        mask = self.live.mask.repeat_interleave(self.options.beam_groups, 0).unsqueeze(1)
        return self.options.coverage_penalty * self.live.covered.clamp(max=1).log().masked_fill(~mask, 0).sum(-1)


def _inherited(values: Tensor, parents: Tensor) -> Tensor:
    """Those of the beams' parents (Q, K), (Q, K, …)."""
    return values.gather(1, parents.unsqueeze(-1).expand_as(values))
