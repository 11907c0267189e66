"""Rules: what may be said next, whatever the model thinks. Minus infinity where a rule forbids, no renormalising.

Scores stay log p(y | x) under the model, so hypotheses found under different rules can be compared. Every rule is a
pure function of what each row has said, so beams carry no state for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.config import UserError

NOTHING = -1
"""The id of padding in tables of phrases and of what was said."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules of one search."""

    eos: int
    """The id that ends a hypothesis; NOTHING where there is none."""
    banned: Tensor
    """(N,) ids that are never said."""
    shortest: int = 0
    """Tokens before the end."""
    no_repeat: int = 0
    forbidden: Tensor | None = None
    """(F, P) phrases that are never said, padded on the left."""

    def never(self, length: int) -> Tensor:
        """Ids that no row may say after `length` ids: few, so a search leaves them out when it picks the best."""
        return self.unended if length < self.shortest else self.banned

    @functools.cached_property
    def unended(self) -> Tensor:
        """The banned ids and the end."""
        return self.banned if self.eos == NOTHING else torch.cat([self.banned, self.banned.new_tensor([self.eos])])

    def restrict(self, log_probs: Tensor, said: Tensor, length: int, required: Tensor | None = None) -> Tensor:
        """Log-probabilities (R, V) of what may follow `said` (R, T), of which the last `length` ids are not prompt.

        What depends on the row alone; ids that `never` lists are left to the search.
        `required` (B, C, P) holds the phrases without which the output of a source may not end, padded on the right.
        """
        if self.no_repeat:
            log_probs = without_repeats(log_probs, said, self.no_repeat)
        if self.forbidden is not None:
            log_probs = without_phrases(log_probs, said, self.forbidden)
        if required is not None and self.eos != NOTHING:
            own = said[:, said.size(1) - length :].reshape(len(required), len(said) // len(required), length)
            missing = ~met(own, required).all(-1).flatten()  # (R,)
            log_probs = log_probs.clone()
            log_probs[:, self.eos].masked_fill_(missing, -torch.inf)
        return log_probs


def without_repeats(log_probs: Tensor, said: Tensor, size: int) -> Tensor:
    """Nothing that would make a run of `size` ids occur a second time (Paulus et al. 2018)."""
    if said.size(1) < size:
        return log_probs
    runs = said.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = said[:, said.size(1) - size + 1 :].unsqueeze(1)  # (R, 1, size - 1)
    again = (runs[..., :-1] == last).all(-1) & (runs[..., -1] != NOTHING)
    return _forbid(log_probs, runs[..., -1], again)


def without_phrases(log_probs: Tensor, said: Tensor, phrases: Tensor) -> Tensor:
    """Nothing that would complete one of the phrases (F, P)."""
    before = phrases[:, :-1]  # (F, P - 1)
    said = F.pad(said, (max(0, before.size(1) - said.size(1)), 0), value=NOTHING)
    recent = said[:, said.size(1) - before.size(1) :].unsqueeze(1)  # (R, 1, P - 1)
    complete = ((recent == before) | (before == NOTHING)).all(-1)  # (R, F)
    return _forbid(log_probs, phrases[:, -1].expand(len(log_probs), -1), complete)


def _forbid(log_probs: Tensor, ids: Tensor, where: Tensor) -> Tensor:
    """Minus infinity at ids (R, N) of each row, where so marked."""
    penalty = torch.zeros_like(ids, dtype=log_probs.dtype).masked_fill(where, -torch.inf)
    return log_probs.scatter_add(1, ids.clamp(min=0), penalty)


def met(said: Tensor, phrases: Tensor) -> Tensor:
    """Which phrases (B, C, P) occur in what was said (B, N, T): (B, N, C). A phrase of nothing but padding does."""
    sizes = (phrases != NOTHING).sum(-1)  # (B, C)
    found = (sizes == 0).unsqueeze(1).expand(-1, said.size(1), -1)
    for size in range(1, min(phrases.size(-1), said.size(-1)) + 1):
        runs = said.unfold(-1, size, 1).unsqueeze(2)  # (B, N, 1, T - size + 1, size)
        same = (runs == phrases[:, None, :, None, :size]).all(-1).any(-1)
        found = found | (same & (sizes == size).unsqueeze(1))
    return found


def begun(said: Tensor, phrases: Tensor) -> Tensor:
    """How many ids of each phrase (B, C, P) stand at the end of what was said (B, N, T): (B, N, C)."""
    progress = torch.zeros(*said.shape[:2], phrases.size(1), dtype=torch.long, device=said.device)
    sizes = (phrases != NOTHING).sum(-1).unsqueeze(1)
    for size in range(1, min(phrases.size(-1), said.size(-1)) + 1):
        same = (said[..., None, said.size(-1) - size :] == phrases[:, None, :, :size]).all(-1) & (size <= sizes)
        progress = progress.masked_fill(same, size)
    return progress


def bank(said: Tensor, phrases: Tensor) -> Tensor:
    """Required ids that are safe: all of the phrases met, and of the unmet the one that is furthest on. (B, N)"""
    sizes = (phrases != NOTHING).sum(-1).unsqueeze(1)
    done = met(said, phrases)
    return torch.where(done, sizes, 0).sum(-1) + begun(said, phrases).masked_fill(done, 0).amax(-1)


def forbidden_table(phrases: Sequence[Sequence[int]], device: torch.device | str) -> Tensor | None:
    """Phrases padded on the left."""
    if not phrases:
        return None
    _refuse_empty(phrases)
    width = max(map(len, phrases))
    return torch.tensor([[NOTHING] * (width - len(p)) + list(p) for p in phrases], device=device)


def required_table(phrases: Sequence[Sequence[Sequence[int]]], device: torch.device | str) -> Tensor | None:
    """Phrases of each source, padded on the right to one table."""
    if not any(phrases):
        return None
    for own in phrases:
        _refuse_empty(own)
    many, width = max(map(len, phrases)), max(len(p) for own in phrases for p in own)
    table = torch.full((len(phrases), many, width), NOTHING, device=device)
    for n, own in enumerate(phrases):
        for c, phrase in enumerate(own):
            table[n, c, : len(phrase)] = torch.tensor(list(phrase), device=device)
    return table


def _refuse_empty(phrases: Sequence[Sequence[int]]) -> None:
    if not all(phrases):
        raise UserError("a required or forbidden phrase has no tokens; leave it out.")
