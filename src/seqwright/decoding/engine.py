"""The decoding engine: sequences in flight over one model, admitted and canceled at any step.

Every sequence has a slot in the model's state and its own options, seed and callback. Finishing frees the slot without
copying a cache; a new request takes a free slot, or a new one. Outputs of free slots are discarded, and so are those
that a device computed ahead of the host after the end of a sequence. Law: every sequence equals itself alone, whatever
is admitted, finishes or is canceled beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.decoding_step import DecodingStep, Rows
from seqwright.decoding.options import check_seed
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
        self.decoder = DecodingStep(model, self.device)
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
        for own in (*self.waiting, *self.slots):
            if own is not None and own.id == id:
                own.reason = "canceled"
        self.waiting = [own for own in self.waiting if own.reason is None]
        self._release()

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Generates an id for every sequence in flight, or several where a device runs ahead of the host; the sequences
        that it generated for.

        Where a new request cannot be read (an id outside the vocabulary, everything banned), the requests that were
        waiting are refused, and the error comes back; the sequences in flight stay as they were.
        """
        newcomers = self._prefill_waiting()
        full = self._prefill_full()
        reread = [] if full is None else full.generations
        moving = [own if own not in reread else None for own in self.slots]
        gained: dict[int, list[tuple[int, float]]] = {}
        outputs: list[tuple[Sequence[Generation | None], Tensor]] = []
        if any(moving) and self.speculation is not None:
            gained = self._speculate(self.speculation, moving)
        elif any(moving):
            outputs.append((moving, self._advance(moving, 1 if reread else self.decoder.ahead)))  # (k, 2, N)
        for entering in (full, newcomers):
            if entering is not None:
                outputs.append((entering.generations, self._enter(entering).unsqueeze(0)))  # (1, 2, P)
        # One transfer for all rows: a device is waited for once.
        numbers = iter(torch.cat([output.flatten() for _, output in outputs]).tolist() if outputs else [])
        for owners, output in outputs:
            for _ in range(len(output)):
                ids, log_probs = (list(itertools.islice(numbers, len(owners))) for _ in range(2))
                for own, id, log_prob in zip(owners, ids, log_probs, strict=True):
                    if own is not None:
                        gained.setdefault(own.id, []).append((int(id), log_prob))
        return self._account(gained) if gained else []

    def _account(self, gained: dict[int, list[tuple[int, float]]]) -> list[Generation]:
        """Appends ids and log-probabilities to the sequences they were generated for, step by step, calls the callbacks
        after each, and frees the slots of those that end. Where a callback raises, its sequence ends, and the error
        comes back when the others are done."""
        grown = [own for own in self.slots if own is not None and own.id in gained]
        errors: list[Exception] = []
        for step in range(max(map(len, gained.values()))):
            current = [own for own in grown if own.reason is None and step < len(gained[own.id])]
            for own in current:
                id, log_prob = gained[own.id][step]
                own.log_prob += log_prob
                if id == self.end:
                    own.reason = "end"
                else:
                    own.ids.append(id)
            for own in current:
                if own.reason is None:  # nor has another's callback canceled it
                    self._call_back(own, errors)
        self._release()
        if errors:
            raise errors[0]
        return grown

    @staticmethod
    def _call_back(own: Generation, errors: list[Exception]) -> None:
        try:
            stopped = own.on_token is not None and own.on_token(own.ids[-1])
        except Exception as error:
            errors.append(error)
            stopped = True
        if stopped:
            own.reason = "stop"
        elif len(own.ids) >= own.options.max_tokens:
            own.reason = "length"

    def _release(self) -> None:
        """Frees the slots of sequences that ended, and drops free slots where there are enough of them."""
        kept = [n for n, own in enumerate(self.slots) if own is not None and own.reason is None]
        if len(kept) == sum(own is not None for own in self.slots):
            return
        if not kept:
            self.slots, self.state, self.rows, self.capacity = [], None, None, 0
        elif len(kept) <= (COMPACT_CAPTURED if self.decoder.captures else COMPACT) * len(self.slots):
            index = self._index(kept)
            assert self.state is not None
            assert self.rows is not None
            self.state, self.rows = self.state.select(index, index), self.rows.select(index, index)
            self.slots = [self.slots[n] for n in kept]
        else:
            self.slots = [own if own is not None and own.reason is None else None for own in self.slots]
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
            for own in waiting:
                own.reason = "refused"
            raise

    def _prefill_full(self) -> Prefilled | None:
        """Reads sequences that fill the model's context again, from their recent half."""
        full = [own for own in self.slots if own is not None and own.cached == self.model.context]
        if not full:
            return None
        read = self._read(full)
        seats = self._index([self.slots.index(own) for own in read.generations])
        assert self.rows is not None
        read.rows = self.rows.select(seats, seats)
        return read

    def _read(self, generations: Sequence[Generation]) -> Prefilled:
        """Log-probabilities and states of the recent ids of these sequences, without touching those in flight."""
        groups = self._by_source(generations)
        reads = [self._prefill(group) for group in groups]
        log_probs, states = torch.cat([one for one, _ in reads]), [state for _, state in reads]
        state = states[0].cat(states[1:]) if states[1:] else states[0]
        return Prefilled([own for group in groups for own in group], log_probs, state)

    def _enter(self, new: Prefilled) -> Tensor:
        """Samples the next ids of sequences that were read (2, P), and gives them a slot: their own, or a free one."""
        assert new.rows is not None
        self._reserve_history(new.rows, new.generations, 1)
        output = new.rows.sample_(new.log_probs, self._processors(new.generations))
        held = len(self.slots)
        if new.generations[0] in self.slots:
            seats = [self.slots.index(own) for own in new.generations]
        else:
            free = [n for n, own in enumerate(self.slots) if own is None]
            more = max(0, len(new.generations) - len(free))
            if more and held and self.decoder.captures:
                more = max(more, held)  # sizes double, so that few are captured
            self.slots += [None] * more
            seats = [*free, *range(held, held + more)][: len(new.generations)]
            for seat, own in zip(seats, new.generations, strict=True):
                self.slots[seat] = own
        self.state = self._seated(self.state, new.state, seats, held)
        self.rows = self._seated(self.rows, new.rows, seats, held)
        self.processors = self._processors(self.slots)
        return output

    def _reserve_history(self, rows: Rows, generations: Sequence[Generation | None], steps: int) -> None:
        """Makes room for ids of the next steps, where processors look at them."""
        used = [own for own in generations if own is not None and own.options.needs_history]
        needed = max((len(own.prompt) + len(own.ids) + steps for own in used), default=0)
        if rows.history.tokens.size(1) < needed:
            rows.history = rows.history.widened(2 * needed)

    def _room(self, own: Generation) -> int:
        needed = len(own.prompt) + own.options.max_tokens
        return needed if self.model.context is None else min(self.model.context, needed)

    def _new_rows(self, admitted: Sequence[Generation], vocabulary: int) -> Rows:
        options = [own.options for own in admitted]
        for one in options:
            banned = {*self.banned, *one.banned_ids, *([self.end] if one.min_tokens else [])} - {None}
            if len(banned) >= vocabulary:
                raise UserError("every id is banned, so nothing can be generated; ban fewer.")
        prompts = [own.prompt if own.options.needs_history else [] for own in admitted]
        last = torch.tensor([own.prompt[-1] for own in admitted], device=self.device)
        return Rows(
            last,
            torch.zeros_like(last),
            RowOptions.of(options, vocabulary, self.device, [own.seed for own in admitted]),
            History.of(prompts, self.device),
        )

    def _processors(self, generations: Sequence[Generation | None]) -> LogitsProcessors:
        """The processors that these sequences use."""
        options = [own.options for own in generations if own is not None]
        return LogitsProcessors.of(options, eos=self.end, banned=self.banned, device=self.device)

    def _advance(self, slots: Sequence[Generation | None], ahead: int) -> Tensor:
        """Outputs (k, 2, N) of the next steps of all slots, at most `ahead`: not beyond one in which a sequence fills
        the context, nor one after which all are long enough."""
        assert self.rows is not None
        assert self.state is not None
        moving = [own for own in slots if own is not None]
        ahead = min(ahead, max(own.options.max_tokens - len(own.ids) for own in moving))
        if self.model.context is not None:
            ahead = min(ahead, *(self.model.context - own.cached for own in moving))
        self._reserve_history(self.rows, self.slots, ahead)
        outputs, self.state = self.decoder.run(self.state, self.rows, self.processors, ahead)
        for own in moving:
            own.cached += len(outputs)
        return outputs

    def _speculate(
        self, speculation: Speculation, slots: Sequence[Generation | None]
    ) -> dict[int, list[tuple[int, float]]]:
        """The next ids and log-probabilities of sequences by their id, as many as the draft has right and one more."""
        assert self.rows is not None
        assert self.state is not None
        self._reserve_history(self.rows, self.slots, 1 + MAX_DRAFT)
        outputs, self.state = speculation.run(self.state, self.rows, self.processors, slots)
        return {own.id: output for own, output in zip(slots, outputs, strict=True) if own is not None}

    @staticmethod
    def _by_source(generations: Sequence[Generation]) -> list[list[Generation]]:
        """Those that were admitted with the same sources, together."""
        groups: dict[int, list[Generation]] = {}
        for own in generations:
            groups.setdefault(id(own.source), []).append(own)
        return list(groups.values())

    def _prefill(self, generations: Sequence[Generation]) -> tuple[Tensor, State]:
        """Reads the recent ids of these sequences as one right-padded chunk: log-probabilities (P, V) and state."""
        context = self.model.context
        halves = [max(1, context // 2) if own.cached and context is not None else context for own in generations]
        texts = [own.recent(half) for own, half in zip(generations, halves, strict=True)]
        width = max(map(len, texts))
        ids = torch.tensor([text + text[-1:] * (width - len(text)) for text in texts], device=self.device)
        ragged = min(map(len, texts)) < width
        count = torch.tensor([len(text) for text in texts], device=self.device) if ragged else None
        source = generations[0].source
        if source is None:
            source = Source.empty(len(generations), self.device)
        else:
            source = source.select(self._index([own.row for own in generations]))
        log_probs, state = self.model.step(ids, self.model.start(source, capacity=self.capacity), count)
        for own, text in zip(generations, texts, strict=True):
            own.cached = len(text)
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
