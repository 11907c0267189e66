"""The decoding engine: sequences in flight over one model, admitted and canceled at any step.

Every sequence has a slot in the model's state and its own options, seed and callback. Finishing frees the slot without
copying a cache; a new request takes a free slot, or a new one. Outputs of free slots are discarded. Law: every sequence
equals itself alone, whatever is admitted, finishes or is canceled beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from seqwright.core.batch import Source, accumulator_dtype
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.options import SamplingOptions, check_seed
from seqwright.decoding.processors import History, LogitsProcessors, RowOptions

S = TypeVar("S", bound=State)

COMPACT = 0.75
"""The share of slots in use at which the others are dropped: dropping copies the state, keeping computes free slots."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A prompt to continue, and how."""

    prompt: Sequence[int]
    """Ids, at least one."""
    options: SamplingOptions
    seed: int | None = None
    """That of the options unless given."""
    on_token: Callable[[int], bool] | None = None
    """Called with every generated id; return True to stop the sequence."""


@dataclass(eq=False)
class Generation:
    """One continuation as it grows."""

    id: int
    """What `cancel` takes."""
    prompt: list[int]
    options: SamplingOptions
    seed: int
    on_token: Callable[[int], bool] | None = None
    source: Source | None = None
    """The sources it was admitted with, of which `row` is its own."""
    row: int = 0
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    """Of the generated ids under the model itself, whatever the processors did; that of the end id is included."""
    reason: str | None = None
    """Why it ended: "length", "end" (the end id was generated), "stop" (its callback returned True or raised),
    "canceled", "refused" (its prompt or options, or those of a request beside it, could not be read)."""
    cached: int = 0
    """Ids that its slot of the state holds; 0 before the prompt was read."""

    def recent(self, most: int | None) -> list[int]:
        """The last ids of prompt and output together."""
        together = self.prompt + self.ids
        return together if most is None else together[-most:]


@dataclass
class Rows(State):
    """What a decoding step needs of every slot, on the device."""

    last: Tensor  # (N,): the id generated last
    generated: Tensor  # (N,): the length of the output
    options: RowOptions
    history: History


@dataclass
class Newcomers:
    """Requests whose prompts were read, on their way to a slot."""

    generations: list[Generation]
    log_probs: Tensor  # (P, V)
    state: State
    rows: Rows


class Engine:
    """Generates tokens for many requests at once: `admit`, `step` until `active` is False, `cancel`."""

    def __init__(
        self,
        model: Autoregressive,
        *,
        end: int | None = None,
        banned: Sequence[int] = (),
        device: torch.device | str = "cpu",
    ):
        self.model, self.device = model, torch.device(device)
        self.end, self.banned = end, tuple(banned)
        self.slots: list[Generation | None] = []
        self.waiting: list[Generation] = []
        self.capacity = 0
        """Ids that a slot has room for."""
        self.state: State | None = None
        self.rows: Rows | None = None
        self.processors = self._processors()
        self._ids = itertools.count()

    @property
    def active(self) -> bool:
        """Whether any sequence is in flight."""
        return bool(self.waiting) or any(self.slots)

    def admit(self, requests: Sequence[Request], source: Source | None = None) -> list[Generation]:
        """Takes requests in; row n of `source` is what request n is conditioned on. Their prompts are read by the next
        step."""
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
        """Generates one id for every sequence in flight; those that it was generated for.

        Where a new request cannot be read (an id outside the vocabulary, everything banned), the requests that were
        waiting are refused, and the error comes back; the sequences in flight stay as they were.
        """
        newcomers = self._prefill_waiting()
        if newcomers is None and not self.slots:
            return []
        log_probs = self._advance() if self.slots else None  # (N, V)
        if newcomers is not None:
            log_probs = self._seat(newcomers, log_probs)
        assert self.rows is not None
        assert log_probs is not None
        rows = self.rows
        history = self._history() if self.processors.needs_history else None
        chosen = self.processors.sample(log_probs, rows.options, rows.generated, history)  # (N,)
        rows.last, rows.generated = chosen, rows.generated + 1
        if history is not None:
            rows.history = history.append(chosen)
        gained = log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1)
        wide = accumulator_dtype(self.device)
        # One transfer for all rows: a device is waited for once a step.
        ids, numbers = torch.stack([chosen.to(wide), gained.to(wide)]).tolist()
        live = [(own, int(id), log_prob) for own, id, log_prob in zip(self.slots, ids, numbers, strict=True) if own]
        for own, id, log_prob in live:
            own.log_prob += log_prob
            if id == self.end:
                own.reason = "end"
            else:
                own.ids.append(id)
        self._call_back([own for own, _, _ in live if own.reason is None])
        return [own for own, _, _ in live]

    def _call_back(self, grown: Sequence[Generation]) -> None:
        """Tells the callbacks, after all sequences are accounted for, and frees the slots of those that end. Where a
        callback raises, its sequence ends, and the error comes back when the others are done."""
        errors = []
        for own in grown:
            if own.reason is not None:  # another's callback has canceled it
                continue
            try:
                stopped = own.on_token is not None and own.on_token(own.ids[-1])
            except Exception as error:
                errors.append(error)
                stopped = True
            if stopped:
                own.reason = "stop"
            elif len(own.ids) >= own.options.max_tokens:
                own.reason = "length"
        self._release()
        if errors:
            raise errors[0]

    def _release(self) -> None:
        """Frees the slots of sequences that ended, and drops free slots where there are enough of them."""
        kept = [n for n, own in enumerate(self.slots) if own is not None and own.reason is None]
        if len(kept) == sum(own is not None for own in self.slots):
            return
        if not kept:
            self.slots, self.state, self.rows, self.capacity = [], None, None, 0
        elif len(kept) <= COMPACT * len(self.slots):
            index = self._index(kept)
            assert self.state is not None
            assert self.rows is not None
            self.state, self.rows = self.state.select(index, index), self.rows.select(index, index)
            self.slots = [self.slots[n] for n in kept]
        else:
            self.slots = [own if own is not None and own.reason is None else None for own in self.slots]
        self.processors = self._processors()

    def _prefill_waiting(self) -> Newcomers | None:
        """Reads the prompts of waiting requests, without touching the sequences in flight."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return None
        try:
            return self._newcomers(waiting)
        except Exception:
            for own in waiting:
                own.reason = "refused"
            raise

    def _newcomers(self, waiting: Sequence[Generation]) -> Newcomers:
        self.capacity = max(self.capacity, *map(self._room, waiting))
        groups = self._by_source(waiting)
        reads = [self._prefill(group) for group in groups]
        generations = [own for group in groups for own in group]
        log_probs, states = torch.cat([one for one, _ in reads]), [state for _, state in reads]
        state = states[0].cat(states[1:]) if states[1:] else states[0]
        return Newcomers(generations, log_probs, state, self._new_rows(generations, log_probs.size(1)))

    def _seat(self, new: Newcomers, log_probs: Tensor | None) -> Tensor:
        """Gives newcomers a slot, free ones first; log-probabilities (N, V) of all slots."""
        held, many = len(self.slots), len(new.generations)
        free = [n for n, own in enumerate(self.slots) if own is None]
        seats = [*free, *range(held, held + many)][:many]
        self.slots += [None] * (max(seats) + 1 - held)
        for seat, own in zip(seats, new.generations, strict=True):
            self.slots[seat] = own
        self.state = self._seated(self.state, new.state, seats, held)
        self.rows = self._seated(self.rows, new.rows, seats, held)
        self.processors = self._processors()
        if log_probs is None:
            return new.log_probs  # the first of all: seated in their order
        more = log_probs.new_zeros(len(self.slots) - held, log_probs.size(1))
        return torch.cat([log_probs, more]).index_copy(0, self._index(seats), new.log_probs)

    def _history(self) -> History:
        """The tokens of all slots, with room for one more."""
        assert self.rows is not None
        live = [own for own in self.slots if own is not None and own.options.needs_history]
        needed = max(len(own.prompt) + len(own.ids) + 1 for own in live)
        if self.rows.history.tokens.size(1) < needed:
            self.rows.history = self.rows.history.widened(2 * needed)
        return self.rows.history

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

    def _processors(self) -> LogitsProcessors:
        """The processors that the sequences in flight use."""
        options = [own.options for own in self.slots if own is not None]
        return LogitsProcessors.of(options, eos=self.end, banned=self.banned, device=self.device)

    def _advance(self) -> Tensor:
        """Log-probabilities (N, V) of every slot's next id, after the id that it generated last."""
        assert self.rows is not None
        assert self.state is not None
        live = [own for own in self.slots if own is not None]
        full = [own for own in live if own.cached == self.model.context]
        log_probs: Tensor | None = None
        if len(full) < len(live):
            log_probs, self.state = self.model.step(self.rows.last.unsqueeze(1), self.state)
            for own in live:
                own.cached += own not in full
        for group in self._by_source(full):  # read again from their recent half
            read, state = self._prefill(group)
            seats = [self.slots.index(own) for own in group]
            self.state = self._seated(self.state, state, seats, len(self.slots))
            log_probs = read.new_zeros(len(self.slots), read.size(1)) if log_probs is None else log_probs
            log_probs = log_probs.index_copy(0, self._index(seats), read)
        assert log_probs is not None
        return log_probs

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
        """`new` rows at these seats, which ascend, of a state of `held` rows; those beyond it are appended."""
        if state is None:
            return new
        inside = sum(seat < held for seat in seats)
        if inside == 0:
            return state.cat([new])
        taken, added = self._index(range(inside)), self._index(range(inside, len(seats)))
        first = new if inside == len(seats) else new.select(taken, taken)
        state = state.put(self._index(seats[:inside]), first)
        return state if inside == len(seats) else state.cat([new.select(added, added)])

    def _index(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(list(places), dtype=torch.long, device=self.device)
