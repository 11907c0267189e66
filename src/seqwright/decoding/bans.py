"""Rules: what may be said next, whatever the model thinks. Minus infinity where a rule forbids, no renormalizing.

Scores stay log p(y | x) under the model, so hypotheses found under different rules can be compared. Every rule is a
pure function of what each row has said, so beams carry no state for it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from seqwright.decoding.options import SearchOptions

NOTHING = -1
"""The id of padding in tables of what was said, and of no id at all."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules of one search."""

    eos: int
    """The id that ends a hypothesis; NOTHING where there is none."""
    banned: Tensor
    """(N,) ids that are never said."""
    min_tokens: int = 0
    """Tokens before the end."""
    no_repeat_ngram: int = 0

    @classmethod
    def of(cls, options: SearchOptions, *, eos: int | None, banned: Sequence[int], device: torch.device) -> Self:
        """Those that the options of a search ask for."""
        return cls(
            eos=NOTHING if eos is None else eos,
            banned=torch.tensor(list(banned), dtype=torch.long, device=device),
            min_tokens=options.min_tokens,
            no_repeat_ngram=options.no_repeat_ngram,
        )

    def never(self, length: int) -> Tensor:
        """Ids that no row may say after `length` ids: few, so a search leaves them out when it picks the best."""
        return self.unended if length < self.min_tokens else self.banned

    @functools.cached_property
    def unended(self) -> Tensor:
        """The banned ids and the end."""
        return self.banned if self.eos == NOTHING else torch.cat([self.banned, self.banned.new_tensor([self.eos])])

    def restrict(self, log_probs: Tensor, said: Tensor) -> Tensor:
        """Log-probabilities (R, V) of what may follow `said` (R, T), as far as it depends on the row; ids that `never`
        lists are left to the search."""
        return without_repeats(log_probs, said, self.no_repeat_ngram) if self.no_repeat_ngram else log_probs


def without_repeats(log_probs: Tensor, said: Tensor, size: int) -> Tensor:
    """Nothing that would make a run of `size` ids occur a second time (Paulus et al. 2018)."""
    if said.size(1) < size:
        return log_probs
    runs = said.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = said[:, said.size(1) - size + 1 :].unsqueeze(1)  # (R, 1, size - 1)
    again = (runs[..., :-1] == last).all(-1) & (runs[..., -1] != NOTHING)
    return _forbid(log_probs, runs[..., -1], again)


def _forbid(log_probs: Tensor, ids: Tensor, where: Tensor) -> Tensor:
    """Minus infinity at ids (R, N) of each row, where so marked."""
    penalty = torch.zeros_like(ids, dtype=log_probs.dtype).masked_fill(where, -torch.inf)
    return log_probs.scatter_add(1, ids.clamp(min=0), penalty)
