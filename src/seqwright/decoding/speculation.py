"""Speculative decoding: a draft proposes tokens that the model verifies in one step (Leviathan et al. 2023).

Sampling is a function of (seed, position), so verification samples at every drafted position from the model's own
distribution and accepts drafted tokens while they are the sampled ones. Law: outputs are those without a draft, greedy
or sampled; the draft only decides how many tokens a step yields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.core.state import Rewindable, State
from seqwright.decoding.decoding_step import Rows
from seqwright.decoding.processors import History, LogitsProcessors
from seqwright.decoding.requests import Generation

MAX_DRAFT = 12
"""A draft that was accepted is followed by one that is two tokens longer, up to this; one that was not, by one that is
one token shorter."""
DRAFT_CONTEXT = 32
"""Last ids that a drafting model reads: more than the order of any n-gram, and cheap for others."""

Choose = Callable[[Tensor, int], int]
"""The id that the row would sample from log-probabilities (1, V) at so many positions from now."""


class Draft(ABC):
    """Proposes the next tokens of a text, and counts how many were accepted."""

    drafted = 0
    accepted = 0

    @abstractmethod
    def propose(self, ids: Sequence[int], count: int, choose: Choose) -> list[int]:
        """At most `count` ids that may follow `ids`."""


class PromptLookup(Draft):
    """Proposes what followed the last occurrence of the last few ids in the text itself (Saxena 2023): free, and apt
    where outputs repeat or quote."""

    def __init__(self, longest: int = 3):
        self.longest = longest

    def propose(self, ids: Sequence[int], count: int, choose: Choose) -> list[int]:
        text = list(ids)
        for size in range(min(self.longest, len(text) - 1), 0, -1):
            last = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start : start + size] == last:
                    return text[start + size : start + size + count]
        return []


class ModelDraft(Draft):
    """Proposes what a smaller model would sample at the same positions with the same seed: an n-gram, say."""

    def __init__(self, model: Autoregressive, device: torch.device | str = "cpu"):
        self.model, self.device = model, device

    def propose(self, ids: Sequence[int], count: int, choose: Choose) -> list[int]:
        longest = DRAFT_CONTEXT if self.model.context is None else min(DRAFT_CONTEXT, self.model.context)
        read = list(ids[-longest:])
        if self.model.context is not None:
            count = min(count, self.model.context - len(read) + 1)
        state = self.model.start(Source.empty(1, self.device), capacity=len(read) + count)
        drafted: list[int] = []
        while len(drafted) < count:
            log_probs, state = self.model.step(torch.tensor([read], device=self.device), state)
            drafted.append(choose(log_probs, len(drafted)))
            read = drafted[-1:]
        return drafted


def check_rewindable(model: Autoregressive, device: torch.device) -> None:
    """Raises where the states of a model cannot forget tokens that were not accepted."""
    if not isinstance(model.start(Source.empty(1, device), capacity=1), Rewindable):
        raise UserError(
            "speculative decoding takes back tokens that were not accepted, which only Transformers can; leave the"
            " draft out."
        )


class Speculation:
    """Verifies the tokens that a draft proposes for every slot."""

    def __init__(self, model: Autoregressive, draft: Draft, device: torch.device):
        self.model, self.draft, self.device = model, draft, device
        check_rewindable(model, device)

    def run(
        self, state: State, rows: Rows, processors: LogitsProcessors, slots: Sequence[Generation | None]
    ) -> tuple[list[list[tuple[int, float]]], State]:
        """The next ids of every slot with their log-probabilities, at least one where it has a row, and the state
        after."""
        proposals = [
            [] if generation is None else self._propose(n, generation, rows, processors)
            for n, generation in enumerate(slots)
        ]
        width = 1 + max(map(len, proposals))
        chunk = [ids + [0] * (width - 1 - len(ids)) for ids in proposals]
        count = torch.tensor([1 + len(ids) for ids in proposals], device=self.device)
        drafted = torch.tensor(chunk, dtype=torch.long, device=self.device).view(len(slots), width - 1)
        ids = torch.cat([rows.last.unsqueeze(1), drafted], 1)  # (N, T)
        log_probs, state = self.model.step(ids, state, count, all_positions=True)  # (N, T, V)
        chosen, gained = self._sample(log_probs, drafted, rows, processors)  # (N, T)
        outputs: list[list[tuple[int, float]]] = []
        for generation, proposed, sampled, log_p in zip(
            slots, proposals, chosen.tolist(), gained.tolist(), strict=True
        ):
            agreed = next((n for n, id in enumerate(proposed) if id != sampled[n]), len(proposed))
            taken = 0 if generation is None else agreed + 1
            outputs.append(list(zip(sampled[:taken], log_p[:taken], strict=True)))
            if generation is not None:
                generation.cached += taken
                self.draft.drafted += len(proposed)
                self.draft.accepted += agreed
                generation.drafted = (
                    min(MAX_DRAFT, generation.drafted + 2)
                    if agreed == len(proposed)
                    else max(1, generation.drafted - 1)
                )
        lengths = [0 if generation is None else generation.cached for generation in slots]
        assert isinstance(state, Rewindable)
        state = state.truncate(torch.tensor(lengths, device=self.device))
        self._append(rows, chosen, torch.tensor([max(1, len(output)) for output in outputs], device=self.device))
        return outputs, state

    def _propose(self, n: int, generation: Generation, rows: Rows, processors: LogitsProcessors) -> list[int]:
        count = min(generation.drafted, generation.options.max_tokens - len(generation.ids) - 1)
        if self.model.context is not None:
            count = min(count, self.model.context - generation.cached - 1)
        if count < 1:
            return []
        index = torch.tensor([n], device=self.device)
        options, generated = rows.options.select(index), rows.generated[index]

        def choose(log_probs: Tensor, ahead: int) -> int:
            if processors.needs_history:
                return int(log_probs.argmax())
            return int(processors.sample(log_probs.to(self.device), options, generated + ahead, None))

        return self.draft.propose(generation.prompt + generation.ids, count, choose)[:count]

    def _sample(
        self, log_probs: Tensor, drafted: Tensor, rows: Rows, processors: LogitsProcessors
    ) -> tuple[Tensor, Tensor]:
        """The ids (N, T) that each row samples at its next positions, were the drafted ids before them its own, and
        their log-probabilities."""
        slots, width, _ = log_probs.shape
        flat, ahead = log_probs.flatten(0, 1), torch.arange(width, device=self.device).repeat(slots)
        index = torch.arange(slots, device=self.device).repeat_interleave(width)
        history = None
        if processors.needs_history:  # that of position t holds the first t drafted ids
            history = rows.history.select(index)
            history = history.widened(history.tokens.size(1) + width)
            for t in range(width - 1):
                place = (history.length + t).unsqueeze(1)
                proposed = drafted[:, t].repeat_interleave(width).unsqueeze(1)
                kept = torch.where((ahead > t).unsqueeze(1), proposed, history.tokens.gather(1, place))
                history.tokens.scatter_(1, place, kept)
            history = replace(history, length=history.length + ahead)
        chosen = processors.sample(flat, rows.options.select(index), rows.generated[index] + ahead, history)
        gained = flat.gather(1, chosen.unsqueeze(1)).squeeze(1)
        return chosen.view(slots, width), gained.view(slots, width).double()

    @staticmethod
    def _append(rows: Rows, chosen: Tensor, taken: Tensor) -> None:
        """Appends the first `taken` (N,) of the chosen ids (N, T) to each row."""
        rows.last.copy_(chosen.gather(1, taken.unsqueeze(1) - 1).squeeze(1))
        rows.generated.add_(taken)
        history: History = rows.history
        width = history.tokens.size(1)
        for t in range(chosen.size(1)) if width else ():
            place = (history.length + t).clamp(max=width - 1).unsqueeze(1)
            kept = torch.where((taken > t).unsqueeze(1), chosen[:, t : t + 1], history.tokens.gather(1, place))
            history.tokens.scatter_(1, place, kept)
        history.length.add_(taken).clamp_(max=width)
