"""The decoding engine: sequences in flight over one model, admitted and cancelled at any step.

Every sequence has a slot in the model's state and its own options, seed and callback. Finishing frees the slot without
copying a cache; a new request takes a free slot, or a new one. What is computed for a free slot is read by nobody. Law:
every sequence equals itself alone, whatever is admitted, finishes or is cancelled beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from seqwright.core.batch import Source
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
    """Why it ended: "length", "end" (the end id was generated), "stop" (its callback asked for it), "canceled"."""
    cached: int | None = None
    """Ids that its slot of the state holds; None before the prompt was read."""

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
        self.held = 0
        """Slots that the state has rows for; those beyond have yet to be read."""
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
        """Generates one id for every sequence in flight; those that it was generated for."""
        seats = self._seat()
        live = [own for own in self.slots if own is not None]
        if not live:
            return []
        log_probs = self._next_log_probs()  # (N, V)
        if seats:
            new = self._new_rows([self._generation(n) for n in seats], log_probs.size(1))
            self.rows = self._seated(self.rows, new, seats, 0 if self.rows is None else len(self.rows.last))
        assert self.rows is not None
        rows = self.rows
        history = rows.history if self.processors.needs_history else None
        chosen = self.processors.sample(log_probs, rows.options, rows.generated, history)  # (N,)
        rows.last, rows.generated = chosen, rows.generated + 1
        if history is not None:
            rows.history = history.append(chosen)
        gained = log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1)
        # One transfer for all rows: a device is waited for once a step.
        ids, numbers = torch.stack([chosen.double(), gained.double()]).tolist()
        for own, id, log_prob in zip(self.slots, ids, numbers, strict=True):
            if own is not None:
                self._account(own, int(id), log_prob)
        self._release()
        return live

    def _account(self, own: Generation, id: int, log_prob: float) -> None:
        own.log_prob += log_prob
        if id == self.end:
            own.reason = "end"
            return
        own.ids.append(id)
        if own.on_token is not None and own.on_token(id):
            own.reason = "stop"
        elif len(own.ids) >= own.options.max_tokens:
            own.reason = "length"

    def _release(self) -> None:
        """Frees the slots of sequences that ended, and drops free slots where there are enough of them."""
        kept = [n for n, own in enumerate(self.slots) if own is not None and own.reason is None]
        if len(kept) == sum(own is not None for own in self.slots):
            return
        if not kept:
            self.slots, self.state, self.rows, self.held = [], None, None, 0
        elif self.state is not None and len(kept) <= COMPACT * len(self.slots):
            index = self._index(kept)
            assert self.rows is not None
            self.state, self.rows = self.state.select(index, index), self.rows.select(index, index)
            self.slots, self.held = [self.slots[n] for n in kept], len(kept)
        else:
            self.slots = [own if own is not None and own.reason is None else None for own in self.slots]
        self.processors = self._processors()

    def _seat(self) -> list[int]:
        """Gives every waiting sequence a slot, free ones first; which those are."""
        free = [n for n, own in enumerate(self.slots) if own is None]
        seats = [*free, *range(len(self.slots), len(self.slots) + len(self.waiting))][: len(self.waiting)]
        self.slots += [None] * (max(seats, default=-1) + 1 - len(self.slots))
        for seat, own in zip(seats, self.waiting, strict=True):
            self.slots[seat] = own
            self.capacity = max(self.capacity, self._room(own))
        if seats:
            self.processors, self.waiting = self._processors(), []
        return seats

    def _room(self, own: Generation) -> int:
        needed = len(own.prompt) + own.options.max_tokens
        return needed if self.model.context is None else min(self.model.context, needed)

    def _new_rows(self, admitted: Sequence[Generation], vocabulary: int) -> Rows:
        options = [own.options for own in admitted]
        for one in options:
            if len({*self.banned, *one.banned_ids}) >= vocabulary:
                raise UserError("every id is banned, so nothing can be generated; ban fewer.")
        looking = [own if own.options.penalized or own.options.no_repeat_ngram else None for own in admitted]
        room = max((len(own.prompt) + own.options.max_tokens for own in looking if own is not None), default=0)
        history = History.of([[] if own is None else own.prompt for own in looking], room, self.device)
        last = torch.tensor([own.prompt[-1] for own in admitted], device=self.device)
        seeds = [own.seed for own in admitted]
        return Rows(last, torch.zeros_like(last), RowOptions.of(options, vocabulary, self.device, seeds), history)

    def _processors(self) -> LogitsProcessors:
        """The processors that the sequences in flight use."""
        options = [own.options for own in self.slots if own is not None]
        return LogitsProcessors.of(options, eos=self.end, banned=self.banned, device=self.device)

    def _next_log_probs(self) -> Tensor:
        """Log-probabilities (N, V) of every slot's next id, the state brought up to date."""
        unread = [n for n, own in enumerate(self.slots) if own is not None and self._must_read(own)]
        stepped: Tensor | None = None
        if any(own is not None and n not in unread for n, own in enumerate(self.slots)):
            assert self.rows is not None
            assert self.state is not None
            stepped, self.state = self.model.step(self.rows.last[: self.held].unsqueeze(1), self.state)
            for n, own in enumerate(self.slots):
                if own is not None and own.cached is not None and n not in unread:
                    own.cached += 1
        if not unread:
            assert stepped is not None
            return stepped
        groups = self._by_source(unread)
        reads = [self._prefill(group) for group in groups]
        read, states = torch.cat([log_probs for log_probs, _ in reads]), [state for _, state in reads]
        seats = [n for group in groups for n in group]
        new = states[0].cat(states[1:]) if states[1:] else states[0]
        self.state = self._seated(self.state, new, seats, self.held)
        self.held = len(self.slots)
        log_probs = read.new_zeros(len(self.slots), read.size(1)) if stepped is None else stepped
        if len(log_probs) < len(self.slots):
            log_probs = torch.cat([log_probs, log_probs.new_zeros(len(self.slots) - len(log_probs), read.size(1))])
        return log_probs.index_copy(0, self._index(seats), read)

    def _must_read(self, own: Generation) -> bool:
        """Whether its prompt was not read yet, or its context is full and has to be read again from its recent half."""
        return own.cached is None or own.cached == self.model.context

    def _by_source(self, seats: Sequence[int]) -> list[list[int]]:
        """Slots whose sequences were admitted with the same sources, together."""
        groups: dict[int, list[int]] = {}
        for n in seats:
            groups.setdefault(id(self._generation(n).source), []).append(n)
        return list(groups.values())

    def _prefill(self, seats: Sequence[int]) -> tuple[Tensor, State]:
        """Reads the recent ids of these sequences as one right-padded chunk: log-probabilities (P, V) and state."""
        context = self.model.context
        admitted = [self._generation(n) for n in seats]
        halves = [context if own.cached is None or context is None else max(1, context // 2) for own in admitted]
        texts = [own.recent(half) for own, half in zip(admitted, halves, strict=True)]
        width = max(map(len, texts))
        ids = torch.tensor([text + text[-1:] * (width - len(text)) for text in texts], device=self.device)
        ragged = min(map(len, texts)) < width
        count = torch.tensor([len(text) for text in texts], device=self.device) if ragged else None
        source = admitted[0].source
        if source is None:
            source = Source.empty(len(admitted), self.device)
        else:
            source = source.select(self._index([own.row for own in admitted]))
        log_probs, state = self.model.step(ids, self.model.start(source, capacity=self.capacity), count)
        for own, text in zip(admitted, texts, strict=True):
            own.cached = len(text)
        return log_probs, state

    def _seated(self, state: S | None, new: S, seats: Sequence[int], held: int) -> S:
        """`new` rows at these seats of a state of `held` rows, and behind them, in order, where it has fewer."""
        order = sorted(range(len(seats)), key=seats.__getitem__)
        if state is None or len(seats) == len(self.slots):
            return self._rows_of(new, order, len(seats))
        taken = [n for n in order if seats[n] < held]
        added = order[len(taken) :]
        if taken:
            state = state.put(self._index([seats[n] for n in taken]), self._rows_of(new, taken, len(seats)))
        return state.cat([self._rows_of(new, added, len(seats))]) if added else state

    def _rows_of(self, state: S, rows: Sequence[int], many: int) -> S:
        """These of its `many` rows; itself where they are all of them, in order."""
        if list(rows) == list(range(many)):
            return state
        index = self._index(rows)
        return state.select(index, index)

    def _generation(self, seat: int) -> Generation:
        own = self.slots[seat]
        assert own is not None
        return own

    def _index(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(list(places), dtype=torch.long, device=self.device)
