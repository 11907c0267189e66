"""Filters of a distribution: log-probabilities (B, V) in, renormalized log-probabilities out, -inf where one is cut.

Each is a pure function whose parameter is a number or a tensor (B, 1), so that rows stay independent and a captured
graph can hold them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Parameter = float | Tensor
"""One number for all rows, or (B, 1)."""


def temper(log_probs: Tensor, temperature: Parameter) -> Tensor:
    """Softmax temperature: flatter above 1, sharper below."""
    # From the maximum down, so that no temperature makes the most probable token infinite.
    return ((log_probs - log_probs.amax(-1, keepdim=True)) / temperature).log_softmax(-1)


def top_k(log_probs: Tensor, k: int | Tensor, most: int | None = None) -> Tensor:
    """The k most probable tokens, and those tied with the last of them (Fan et al. 2018); `most` is the largest k of a
    tensor, known to the host."""
    if isinstance(k, int):
        most, k = k, torch.full_like(log_probs[..., :1], k, dtype=torch.long)
    assert most is not None
    values = log_probs.topk(min(most, log_probs.size(-1))).values
    last = values.gather(-1, k.clamp(max=values.size(-1)) - 1)
    return log_probs.masked_fill(log_probs < last, -torch.inf).log_softmax(-1)


def top_p(log_probs: Tensor, p: Parameter) -> Tensor:
    """The smallest set of most probable tokens with mass p or more (nucleus sampling, Holtzman et al. 2020)."""
    return _smallest_set(log_probs, log_probs, p)


def typical(log_probs: Tensor, p: Parameter) -> Tensor:
    """The tokens whose surprisal is nearest to the entropy, up to mass p (Meister et al. 2023)."""
    entropy = torch.special.entr(log_probs.exp()).sum(-1, keepdim=True)  # (B, 1)
    return _smallest_set(log_probs, -(log_probs + entropy).abs(), p)


def min_p(log_probs: Tensor, p: Parameter) -> Tensor:
    """Tokens at least p times as probable as the most probable one (Nguyen et al. 2024)."""
    floor = math.log(p) if isinstance(p, float) else p.log().to(log_probs.dtype)
    threshold = log_probs.amax(-1, keepdim=True) + floor
    return log_probs.masked_fill(log_probs < threshold, -torch.inf).log_softmax(-1)


def epsilon_cutoff(log_probs: Tensor, epsilon: Parameter) -> Tensor:
    """Tokens with probability epsilon or more, and the most probable one in any case (Hewitt et al. 2022)."""
    floor = math.log(epsilon) if isinstance(epsilon, float) else epsilon.log().to(log_probs.dtype)
    few = (log_probs < floor) & (log_probs < log_probs.amax(-1, keepdim=True))
    return log_probs.masked_fill(few, -torch.inf).log_softmax(-1)


def penalize_repetition(log_probs: Tensor, counts: Tensor, penalty: Parameter) -> Tensor:
    """log p times `penalty` for every token with a count (B, V) above 0 (CTRL, Keskar et al. 2019)."""
    return torch.where(counts > 0, log_probs * penalty, log_probs).log_softmax(-1)


def penalize_counts(log_probs: Tensor, counts: Tensor, *, presence: Parameter, frequency: Parameter) -> Tensor:
    """Minus `frequency` for each occurrence (B, V) of a token, and minus `presence` once for any."""
    counts = counts.to(log_probs)  # a Python number times integers would be float32, whatever log_probs are
    return (log_probs - frequency * counts - presence * (counts > 0)).log_softmax(-1)


def repeated_ngrams(tokens: Tensor, lengths: Tensor, n: int, vocabulary: int) -> Tensor:
    """(B, V) bool: the tokens that would complete an n-gram a row already has (Paulus et al. 2018).

    tokens (B, T) are right-padded; lengths (B,) count the real ones.
    """
    rows, width = tokens.shape
    if width < n:
        return tokens.new_zeros(rows, vocabulary, dtype=torch.bool)
    grams = tokens.unfold(1, n, 1)  # (B, T - n + 1, n)
    place = (lengths.unsqueeze(1) - (n - 1) + torch.arange(n - 1, device=tokens.device)).clamp(0, width - 1)
    prefix = tokens.gather(1, place).unsqueeze(1)  # (B, 1, n - 1): the last n - 1 tokens
    complete = torch.arange(grams.size(1), device=tokens.device) + n <= lengths.unsqueeze(1)
    again = (grams[..., :-1] == prefix).all(-1) & complete  # (B, T - n + 1)
    return counts_of(torch.where(again, grams[..., -1], -1), vocabulary) > 0


def counts_of(tokens: Tensor, vocabulary: int) -> Tensor:
    """(B, V): how often each id occurs in a row of tokens (B, T); negative ids are padding."""
    counts = torch.zeros(tokens.size(0), vocabulary, dtype=torch.long, device=tokens.device)
    return counts.scatter_add_(1, tokens.clamp(min=0), (tokens >= 0).long())


def _smallest_set(log_probs: Tensor, merit: Tensor, p: Parameter) -> Tensor:
    """The fewest tokens by falling merit that hold mass p or more."""
    order = merit.sort(dim=-1, descending=True, stable=True).indices
    ordered = log_probs.gather(-1, order)
    before = ordered.exp().cumsum(-1) - ordered.exp()  # mass ahead of a token; 0 for the first, which always stays
    ordered = ordered.masked_fill(before >= p, -torch.inf)
    return torch.empty_like(log_probs).scatter_(-1, order, ordered).log_softmax(-1)
