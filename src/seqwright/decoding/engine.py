"""The decoding engine: sequences in flight over one model, admitted and canceled at any step.

Every sequence has a slot in the model's state and its own options, seed and callback. Finishing frees the slot without
copying a cache; a new request takes a free slot, or a new one. Outputs of free slots are discarded, and so are those
that a device computed ahead of the host after the end of a sequence. Law: every sequence equals itself alone, whatever
is admitted, finishes or is canceled beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.cuda_graph import HostCopy
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.decoding_step import DecodingStep, Outputs, Rows
from seqwright.decoding.kept import Entry, keep, take
from seqwright.decoding.options import check_seed
from seqwright.decoding.prefill import prefill
from seqwright.decoding.processors import History, LogitsProcessors, RowOptions
from seqwright.decoding.requests import Generation, Request
from seqwright.decoding.speculation import MAX_DRAFT, Draft, Speculation

S = TypeVar("S", bound=State)

COMPACT = 0.75
"""The share of slots in use at which the others are dropped: dropping copies the state, keeping computes free slots."""
COMPACT_CAPTURED = 0.25
"""The same where steps are captured: smaller shapes are captured anew, and cost a device hardly less."""


@dataclass
class Prefilled:
    """Sequences that were read, on their way to a slot."""

    generations: list[Generation]
    log_probs: Tensor  # (P, V)
    state: State
    rows: Rows | None = None


class Engine:
    """Generates tokens for many requests at once: `admit`, `step` until `active` is False, `cancel`."""

    def __init__(
        self,
        model: Autoregressive,
        *,
        end: int | None = None,
        banned: Sequence[int] = (),
        device: torch.device | str = "cpu",
        draft: Draft | None = None,
    ):
        self.model, self.device = model, torch.device(device)
        self.end, self.banned = end, tuple(banned)
        self.slots: list[Generation | None] = []
        self.waiting: list[Generation] = []
        self.capacity = 0
        """Ids that a slot has room for."""
        self.state: State | None = None
        self.rows: Rows | None = None
        kept = take(model, self._kept_as)
        self.decoder: DecodingStep = DecodingStep(model, self.device) if kept is None else kept.value
        self.pending: Outputs | None = None
        """Of steps that a device computes while the host accounts for those before."""
        self.speculation = None if draft is None else Speculation(model, draft, self.device)
        self.processors = self._processors([])
        self._ids = itertools.count()

    @property
    def active(self) -> bool:
        """Whether any sequence is in flight."""
        return bool(self.waiting) or any(self.slots)

    def admit(self, requests: Sequence[Request], source: Source | None = None) -> list[Generation]:
        """Takes requests in; row n of `source` is what request n is conditioned on. Their prompts are read by the next
        step."""
        if source is not None and self.speculation is not None:
            raise UserError("speculative decoding is for language models, which have no source; leave the draft out.")
        if source is not None and source.rows != len(requests):
            raise UserError(f"{len(requests)} requests need as many sources, not {source.rows}.")
        admitted = []
        for row, request in enumerate(requests):
            if not request.prompt:
                raise UserError("a prompt has at least one id; begin with <sos>, or with some text.")
            seed = request.options.seed if request.seed is None else request.seed
            check_seed(seed)
            prompt, number = list(request.prompt), next(self._ids)
            admitted.append(Generation(number, prompt, request.options, seed, request.on_token, source, row))
        self.waiting += admitted
        return admitted

    def cancel(self, id: int) -> None:
        """Ends a sequence now; its slot is free. Nothing happens where it has ended already."""
        for generation in (*self.waiting, *self.slots):
            if generation is not None and generation.id == id:
                generation.reason = "canceled"
        self.waiting = [generation for generation in self.waiting if generation.reason is None]
        self._release()

    def finish(self) -> None:
        """Steps until nothing is in flight; the next engine of this model can use what was captured."""
        while self.active:
            self.step()
        if self.decoder.graphs:
            keep(self.model, self._kept_as, Entry(self.decoder, self.decoder.tensors), self.device)
            self.decoder = DecodingStep(self.model, self.device)

    @property
    def _kept_as(self) -> Hashable:
        """What captured steps depend on besides model, shapes and processors."""
        return "generation", str(self.device), self.end, self.banned

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Generates an id for every sequence in flight, or several where a device runs ahead of the host; the sequences
        that it generated for.

        Where a new request cannot be read (an id outside the vocabulary, everything banned), the requests that were
        waiting are refused, and the error comes back; the sequences in flight stay as they were.
        """
        if self.pending is not None and self._full():  # which are read again, with the ids that are still pending
            pending, self.pending = self.pending, None
            return self._account(pending.gained())
        newcomers = self._prefill_waiting()
        full = self._prefill_full()
        reread = [] if full is None else full.generations
        moving = [generation if generation not in reread else None for generation in self.slots]
        gained: dict[int, list[tuple[int, float]]] = {}
        outputs: list[Outputs] = []
        if any(moving) and self.speculation is not None:
            gained = self._speculate(self.speculation, moving)
        elif any(moving):
            if launched := self.pending or self._advance(moving, 1 if reread else self.decoder.ahead):
                outputs.append(launched)
            self.pending = launched
            self.pending = self._advance(moving, self.decoder.ahead) if self.decoder.captures and not reread else None
        for entering in (full, newcomers):
            if entering is not None:
                outputs.append(Outputs(entering.generations, HostCopy(self._enter(entering).unsqueeze(0))))
        for output in outputs:
            gained |= output.gained()
        return self._account(gained) if gained else []

    def _account(self, gained: dict[int, list[tuple[int, float]]]) -> list[Generation]:
        """Appends ids and log-probabilities to the sequences they were generated for, step by step, calls the callbacks
        after each, and frees the slots of those that end. Where a callback raises, its sequence ends, and the error
        comes back when the others are done."""
        grown = [generation for generation in self.slots if generation is not None and generation.id in gained]
        errors: list[Exception] = []
        for step in range(max(map(len, gained.values()))):
            current = [
                generation for generation in grown if generation.reason is None and step < len(gained[generation.id])
            ]
            for generation in current:
                id, log_prob = gained[generation.id][step]
                generation.log_prob += log_prob
                if id == self.end:
                    generation.reason = "end"
                else:
                    generation.ids.append(id)
            for generation in current:
                if generation.reason is None:  # nor has another's callback canceled it
                    self._call_back(generation, errors)
        self._release()
        if errors:
            raise errors[0]
        return grown

    @staticmethod
    def _call_back(generation: Generation, errors: list[Exception]) -> None:
        try:
            stopped = generation.on_token is not None and generation.on_token(generation.ids[-1])
        except Exception as error:
            errors.append(error)
            stopped = True
        if stopped:
            generation.reason = "stop"
        elif len(generation.ids) >= generation.options.max_tokens:
            generation.reason = "length"

    def _release(self) -> None:
        """Frees the slots of sequences that ended, and drops free slots where there are enough of them."""
        kept = [n for n, generation in enumerate(self.slots) if generation is not None and generation.reason is None]
        if len(kept) == sum(generation is not None for generation in self.slots):
            return
        if not kept:
            self.slots, self.state, self.rows, self.capacity, self.pending = [], None, None, 0, None
        elif len(kept) <= (COMPACT_CAPTURED if self.decoder.captures else COMPACT) * len(self.slots):
            index = self._index(kept)
            assert self.state is not None
            assert self.rows is not None
            self.state, self.rows = self.state.select(index, index), self.rows.select(index, index)
            self.slots = [self.slots[n] for n in kept]
        else:
            self.slots = [
                generation if generation is not None and generation.reason is None else None
                for generation in self.slots
            ]
        self.processors = self._processors(self.slots)

    def _prefill_waiting(self) -> Prefilled | None:
        """Reads the prompts of waiting requests, without touching the sequences in flight."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return None
        try:
            self.capacity = max(self.capacity, *map(self._room, waiting))
            read = self._read(waiting)
            read.rows = self._new_rows(read.generations, read.log_probs.size(1))
            return read
        except Exception:
            for generation in waiting:
                generation.reason = "refused"
            raise

    def _full(self) -> list[Generation]:
        """The sequences that fill the model's context."""
        context = self.model.context
        return [one for one in self.slots if one is not None and one.cached == context]

    def _prefill_full(self) -> Prefilled | None:
        """Reads sequences that fill the model's context again, from their recent half."""
        full = self._full()
        if not full:
            return None
        read = self._read(full)
        seats = self._index([self.slots.index(generation) for generation in read.generations])
        assert self.rows is not None
        read.rows = self.rows.select(seats, seats)
        return read

    def _read(self, generations: Sequence[Generation]) -> Prefilled:
        """Log-probabilities and states of the recent ids of these sequences, without touching those in flight."""
        groups = self._by_source(generations)
        reads = [self._prefill(group) for group in groups]
        log_probs, states = torch.cat([one for one, _ in reads]), [state for _, state in reads]
        state = states[0].cat(states[1:]) if states[1:] else states[0]
        return Prefilled([generation for group in groups for generation in group], log_probs, state)

    def _enter(self, new: Prefilled) -> Tensor:
        """Samples the next ids of sequences that were read (2, P), and gives them a slot: their own, or a free one."""
        assert new.rows is not None
        self._reserve_history(new.rows, new.generations, 1)
        output = new.rows.sample_(new.log_probs, self._processors(new.generations))
        held = len(self.slots)
        if new.generations[0] in self.slots:
            seats = [self.slots.index(generation) for generation in new.generations]
        else:
            free = [n for n, generation in enumerate(self.slots) if generation is None]
            more = max(0, len(new.generations) - len(free))
            if more and held and self.decoder.captures:
                more = max(more, held)  # sizes double, so that few are captured
            self.slots += [None] * more
            seats = [*free, *range(held, held + more)][: len(new.generations)]
            for seat, generation in zip(seats, new.generations, strict=True):
                self.slots[seat] = generation
        self.state = self._seated(self.state, new.state, seats, held)
        self.rows = self._seated(self.rows, new.rows, seats, held)
        self.processors = self._processors(self.slots)
        return output

    def _reserve_history(self, rows: Rows, generations: Sequence[Generation | None], steps: int) -> None:
        """Makes room for ids of the next steps, where processors look at them."""
        used = [generation for generation in generations if generation is not None and generation.options.needs_history]
        needed = max((len(generation.prompt) + len(generation.ids) + steps for generation in used), default=0)
        if rows.history.tokens.size(1) < needed:
            rows.history = rows.history.widened(2 * needed)

    def _room(self, generation: Generation) -> int:
        needed = len(generation.prompt) + generation.options.max_tokens
        return needed if self.model.context is None else min(self.model.context, needed)

    def _new_rows(self, admitted: Sequence[Generation], vocabulary: int) -> Rows:
        options = [generation.options for generation in admitted]
        for one in options:
            banned = {*self.banned, *one.banned_ids, *([self.end] if one.min_tokens else [])} - {None}
            if len(banned) >= vocabulary:
                raise UserError("every id is banned, so nothing can be generated; ban fewer.")
        prompts = [generation.prompt if generation.options.needs_history else [] for generation in admitted]
        last = torch.tensor([generation.prompt[-1] for generation in admitted], device=self.device)
        return Rows(
            last,
            torch.zeros_like(last),
            RowOptions.of(options, vocabulary, self.device, [generation.seed for generation in admitted]),
            History.of(prompts, self.device),
        )

    def _processors(self, generations: Sequence[Generation | None]) -> LogitsProcessors:
        """The processors that these sequences use."""
        options = [generation.options for generation in generations if generation is not None]
        return LogitsProcessors.of(options, eos=self.end, banned=self.banned, device=self.device)

    def _advance(self, slots: Sequence[Generation | None], ahead: int) -> Outputs | None:
        """Outputs of the next steps of all slots, at most `ahead`, after those that are pending: not beyond one in
        which a sequence fills the context, nor one after which all are long enough; None where they are already."""
        assert self.rows is not None
        assert self.state is not None
        moving = [generation for generation in slots if generation is not None]
        pending = (
            {} if self.pending is None else {one.id: self.pending.steps for one in self.pending.generations if one}
        )
        lengths = {one.id: len(one.ids) + pending.get(one.id, 0) for one in moving}
        ahead = min(ahead, max(one.options.max_tokens - lengths[one.id] for one in moving))
        context = self.model.context
        if context is not None:
            ahead = min(ahead, *(context - generation.cached for generation in moving))
        if ahead < 1:
            return None
        self._reserve_history(self.rows, self.slots, ahead + max(pending.values(), default=0))
        outputs, self.state, self.rows = self.decoder.run(self.state, self.rows, self.processors, slots, ahead)
        for generation in moving:
            generation.cached += outputs.steps
        return outputs

    def _speculate(
        self, speculation: Speculation, slots: Sequence[Generation | None]
    ) -> dict[int, list[tuple[int, float]]]:
        """The next ids and log-probabilities of sequences by their id, as many as the draft has right and one more."""
        assert self.rows is not None
        assert self.state is not None
        self._reserve_history(self.rows, self.slots, 1 + MAX_DRAFT)
        outputs, self.state = speculation.run(self.state, self.rows, self.processors, slots)
        return {
            generation.id: output for generation, output in zip(slots, outputs, strict=True) if generation is not None
        }

    @staticmethod
    def _by_source(generations: Sequence[Generation]) -> list[list[Generation]]:
        """Those that were admitted with the same sources, together."""
        groups: dict[int, list[Generation]] = {}
        for generation in generations:
            groups.setdefault(id(generation.source), []).append(generation)
        return list(groups.values())

    def _prefill(self, generations: Sequence[Generation]) -> tuple[Tensor, State]:
        """Reads the recent ids of these sequences as one right-padded chunk: log-probabilities (P, V) and state."""
        context = self.model.context
        halves = [
            max(1, context // 2) if generation.cached and context is not None else context for generation in generations
        ]
        texts = [generation.recent(half) for generation, half in zip(generations, halves, strict=True)]
        width = max(map(len, texts))
        ids = torch.tensor([text + text[-1:] * (width - len(text)) for text in texts], device=self.device)
        ragged = min(map(len, texts)) < width
        count = torch.tensor([len(text) for text in texts], device=self.device) if ragged else None
        source = generations[0].source
        if source is None:
            captures = self.decoder.captures
            log_probs, state = prefill(self.model, ids, count, capacity=self.capacity, captures=captures)
        else:
            source = source.select(self._index([generation.row for generation in generations]))
            log_probs, state = self.model.step(ids, self.model.start(source, capacity=self.capacity), count)
        for generation, text in zip(generations, texts, strict=True):
            generation.cached = len(text)
        return log_probs, state

    def _seated(self, state: S | None, new: S, seats: Sequence[int], held: int) -> S:
        """`new` rows at these seats, of a state of `held` rows; those beyond it, which come last and ascend, are
        appended, and slots without a sequence are copies of the last."""
        if state is None:
            return new
        inside = sum(seat < held for seat in seats)
        if inside:
            taken = self._index(range(inside))
            state = state.put(self._index(seats[:inside]), new if inside == len(seats) else new.select(taken, taken))
        if inside == len(seats):
            return state
        appended = [*range(inside, len(seats)), *[len(seats) - 1] * (len(self.slots) - seats[-1] - 1)]
        if len(appended) == len(seats) and not inside:
            return state.cat([new])
        return state.cat([new.select(self._index(appended), self._index(appended))])

    def _index(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(list(places), dtype=torch.long, device=self.device)
