"""Filters: log-probabilities in, log-probabilities out, with minus infinity where a token may not be said.

Each is a pure function of a tensor (B, V), so that rows stay independent and a captured graph can hold them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ban(log_probs: Tensor, ids: Tensor) -> Tensor:
    """Without these ids, renormalised."""
    return log_probs.index_fill(-1, ids, -torch.inf).log_softmax(-1)


def temper(log_probs: Tensor, temperature: float) -> Tensor:
    """Flatter above temperature 1, sharper below, renormalised."""
    return (log_probs / temperature).log_softmax(-1)


def top_k(log_probs: Tensor, k: int) -> Tensor:
    """The k most probable (and whatever ties with the last of them), renormalised."""
    kept = log_probs.topk(min(k, log_probs.size(-1))).values[..., -1:]
    return log_probs.masked_fill(log_probs < kept, -torch.inf).log_softmax(-1)


def top_p(log_probs: Tensor, p: float) -> Tensor:
    """The fewest most probable tokens that hold at least p of the mass (Holtzman et al. 2020), renormalised."""
    ordered, order = log_probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()  # mass above each token; 0 for the first, which always stays
    ordered = ordered.masked_fill(before >= p, -torch.inf)
    return torch.empty_like(log_probs).scatter_(-1, order, ordered).log_softmax(-1)
