"""Generation: one loop for every autoregressive model, prompts of any lengths together, each row as if alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import State
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.sampling import SamplingOptions, check_seed, choose


@dataclass
class Row:
    """One continuation as it grows."""

    prompt: list[int]
    seed: int
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    """Of the ids said, under the model itself, whatever the filters did."""
    seen: int = 0
    """Ids that the row's state holds."""
    reason: str = "length"
    """Why it ended: "length", "end" (the model said so) or "stop" (the listener did)."""

    def recent(self, most: int | None) -> list[int]:
        """The last ids of prompt and continuation together."""
        together = self.prompt + self.ids
        return together if most is None else together[-most:]


@torch.inference_mode()
def generate(
    model: Autoregressive,
    prompts: Sequence[Sequence[int]],
    options: SamplingOptions,
    *,
    end: int | None = None,
    banned: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
    source: Source | None = None,
    device: torch.device | str = "cpu",
    listen: Callable[[int, int], bool] = lambda row, id: False,
) -> list[Row]:
    """Continues each prompt (at least one id); `listen(row, id)` hears every id said and may answer True to stop a row.

    A row that fills the model's context goes on from its most recent half, re-read from the beginning.
    """
    seeds = [options.seed] * len(prompts) if seeds is None else seeds
    if len(seeds) != len(prompts):
        raise UserError(f"{len(prompts)} prompts need as many seeds, not {len(seeds)}.")
    for seed in seeds:
        check_seed(seed)
    rows = [Row(list(prompt), seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    longest = max((len(row.prompt) for row in rows), default=0)
    capacity = (
        longest + options.max_tokens if model.context is None else min(model.context, longest + options.max_tokens)
    )
    reader = _Reader(model, rows, source or Source.empty(len(rows), device), capacity)
    steering: LogitsProcessors | None = None
    while reader.alive:
        log_probs = reader.read()
        alive = [rows[n] for n in reader.alive]
        steering = steering or LogitsProcessors(options, log_probs.size(-1), banned, device)
        steered = steering(log_probs, [row.prompt for row in alive], [row.ids for row in alive])
        own = torch.tensor([row.seed for row in alive], device=device)
        position = torch.tensor([len(row.ids) for row in alive], device=device)
        chosen = choose(steered, options, own, position)
        said = log_probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1).tolist()
        going = []
        for place, (n, id, log_prob) in enumerate(zip(reader.alive, chosen.tolist(), said, strict=True)):
            row = rows[n]
            row.log_prob += log_prob
            if id == end:
                row.reason = "end"
                continue
            row.ids.append(id)
            if listen(n, id):
                row.reason = "stop"
            elif len(row.ids) < options.max_tokens:
                going.append(place)
        reader.keep(going)
    return rows


class _Reader:
    """Keeps the state of the rows still alive, and brings it up to date with what they said."""

    def __init__(self, model: Autoregressive, rows: list[Row], source: Source, capacity: int):
        self.model = model
        self.rows = rows
        self.source = source
        self.capacity = capacity
        self.alive = list(range(len(rows)))
        self.state: State | None = None

    def read(self) -> Tensor:
        """Log-probabilities (B, V) of the next id of each living row."""
        if self.state is None:
            return self._begin(self.alive, most=self.model.context)
        full = [p for p, n in enumerate(self.alive) if self.rows[n].seen == self.model.context]
        if not full:
            return self._go_on(self.alive)
        # Full rows start again from their recent half while the others go on; then the rows return to their places.
        assert self.model.context is not None
        others = [p for p in range(len(self.alive)) if p not in set(full)]
        parts, states = [], []
        held = self.state
        if others:
            self.state = held.select(self._index(others), self._index(others))
            parts.append(self._go_on([self.alive[p] for p in others]))
            states.append(self.state)
        parts.append(self._begin([self.alive[p] for p in full], most=max(1, self.model.context // 2)))
        states.append(self.state)
        back = self._index(others + full).argsort()
        joined = states[0] if len(states) == 1 else states[0].cat(states[1:])
        self.state = joined.select(back, back)
        return torch.cat(parts)[back]

    def keep(self, places: list[int]) -> None:
        """Drops every row but those at these places."""
        if len(places) < len(self.alive):
            index = self._index(places)
            self.alive = [self.alive[p] for p in places]
            if self.alive and self.state is not None:
                self.state = self.state.select(index, index)

    def _begin(self, numbers: list[int], most: int | None) -> Tensor:
        """Reads the recent ids of these rows as one right-padded chunk."""
        texts = [self.rows[n].recent(most) for n in numbers]
        counts = [len(text) for text in texts]
        width = max(counts)
        ids = torch.tensor([text + text[-1:] * (width - len(text)) for text in texts], device=self.source.device)
        count = None if min(counts) == width else torch.tensor(counts, device=self.source.device)
        state = self.model.start(self.source.select(self._index(numbers)), capacity=self.capacity)
        log_probs, self.state = self.model.step(ids, state, count)
        for n, seen in zip(numbers, counts, strict=True):
            self.rows[n].seen = seen
        return log_probs

    def _go_on(self, numbers: list[int]) -> Tensor:
        """Reads the one id that each of these rows said last."""
        ids = torch.tensor([[self.rows[n].ids[-1]] for n in numbers], device=self.source.device)
        assert self.state is not None
        log_probs, self.state = self.model.step(ids, self.state)
        for n in numbers:
            self.rows[n].seen += 1
        return log_probs

    def _index(self, places: list[int]) -> Tensor:
        return torch.tensor(places, dtype=torch.long, device=self.source.device)
