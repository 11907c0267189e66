"""Filters: log-probabilities in, log-probabilities out, with minus infinity where a token may not be said.

Each is a pure function of a tensor (B, V), so that rows stay independent and a captured graph can hold them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def ban(log_probs: Tensor, ids: Tensor) -> Tensor:
    """Without these ids, renormalized."""
    return log_probs.index_fill(-1, ids, -torch.inf).log_softmax(-1)


def force(log_probs: Tensor, ids: Tensor) -> Tensor:
    """Only this id (B,) in each row; rows with a negative one are left free."""
    every = torch.arange(log_probs.size(-1), device=log_probs.device)
    certain = torch.where(every == ids.unsqueeze(-1), 0.0, -torch.inf).to(log_probs.dtype)  # (B, V)
    return torch.where(ids.unsqueeze(-1) >= 0, certain, log_probs)


def bias(log_probs: Tensor, added: Tensor) -> Tensor:
    """With `added` (V,) on top, renormalized: a token's odds are multiplied by exp of it."""
    return (log_probs + added).log_softmax(-1)


def temper(log_probs: Tensor, temperature: float) -> Tensor:
    """Flatter above temperature 1, sharper below, renormalized."""
    wide = log_probs if log_probs.device.type == "mps" else log_probs.double()
    # From the top down and in double precision, so that no temperature makes the most probable token infinite.
    return ((wide - wide.amax(-1, keepdim=True)) / temperature).log_softmax(-1)


def top_k(log_probs: Tensor, k: int) -> Tensor:
    """The k most probable (and whatever ties with the last of them), renormalized."""
    kept = log_probs.topk(min(k, log_probs.size(-1))).values[..., -1:]
    return log_probs.masked_fill(log_probs < kept, -torch.inf).log_softmax(-1)


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """The fewest most probable tokens that hold at least p of the mass (Holtzman et al. 2020), renormalized."""
    return _first(log_probs, log_probs, p)


def typical(log_probs: Tensor, p: float) -> Tensor:
    """The tokens whose surprise is nearest to the expected one, as many as hold p of the mass (Meister et al. 2023)."""
    entropy = torch.special.entr(log_probs.exp()).sum(-1, keepdim=True)  # (B, 1)
    return _first(log_probs, -(log_probs + entropy).abs(), p)


def min_p(log_probs: Tensor, p: float) -> Tensor:
    """Tokens at least p times as probable as the best one (Nguyen et al. 2024), renormalized."""
    least = log_probs.amax(-1, keepdim=True) + math.log(p)
    return log_probs.masked_fill(log_probs < least, -torch.inf).log_softmax(-1)


def penalize_repetition(log_probs: Tensor, counts: Tensor, penalty: float) -> Tensor:
    """log p multiplied by `penalty` for every token with a count (B, V) above 0 (Keskar et al. 2019), renormalized."""
    return torch.where(counts > 0, log_probs * penalty, log_probs).log_softmax(-1)


def penalize_counts(log_probs: Tensor, counts: Tensor, *, presence: float, frequency: float) -> Tensor:
    """`frequency` off for each time a token was said, `presence` once for having been said at all, renormalized."""
    return (log_probs - frequency * counts - presence * (counts > 0)).log_softmax(-1)


def no_repeat(log_probs: Tensor, history: Tensor, n: int) -> Tensor:
    """Without tokens that would say an n-gram of the history again (Paulus et al. 2018), renormalized.

    `history` (B, T) is padded on the left with negative ids. Where every token would repeat, the row stays as it was:
    something has to be said.
    """
    if history.size(1) < n:
        return log_probs
    grams = history.unfold(1, n, 1)  # (B, T - n + 1, n)
    last = history[:, history.size(1) - (n - 1) :].unsqueeze(1)  # (B, 1, n - 1)
    again = (grams[..., :-1] == last).all(-1) & (grams >= 0).all(-1)  # (B, T - n + 1)
    banned = counts_of(torch.where(again, grams[..., -1], -1), log_probs.size(-1)) > 0
    left = log_probs.masked_fill(banned, -torch.inf)
    return torch.where(left.isneginf().all(-1, keepdim=True), log_probs, left).log_softmax(-1)


def counts_of(history: Tensor, vocabulary: int) -> Tensor:
    """How often each id stands in a row: (B, V) from (B, T); negative ids are padding."""
    counts = torch.zeros(history.size(0), vocabulary, dtype=torch.long, device=history.device)
    return counts.scatter_add_(1, history.clamp(min=0), (history >= 0).long())


def _first(log_probs: Tensor, merit: Tensor, p: float) -> Tensor:
    """The fewest tokens, by falling merit, that hold at least p of the mass, renormalized."""
    order = merit.sort(dim=-1, descending=True, stable=True).indices
    ordered = log_probs.gather(-1, order)
    before = ordered.exp().cumsum(-1) - ordered.exp()  # mass ahead of each token; 0 for the first, which always stays
    ordered = ordered.masked_fill(before >= p, -torch.inf)
    return torch.empty_like(log_probs).scatter_(-1, order, ordered).log_softmax(-1)
