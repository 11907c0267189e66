"""Sampling: one id from each row's distribution by a uniform that depends on (seed, position) alone.

So a row sampled in a batch equals the row sampled alone, and a sampling step can be captured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seqwright.core.batch import accumulator_dtype

GOLDEN = -7046029254386353131
"""0x9E3779B97F4A7C15, the increment of splitmix64, as a signed number."""


def draw(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative distribution: ids (B,) from log-probabilities (B, V) and uniforms (B,) in [0, 1)."""
    cumulative = log_probs.to(accumulator_dtype(log_probs.device)).exp().cumsum(-1)
    # Right of equal values: a token of probability 0 adds nothing to the sum and is never reached.
    point = uniforms.to(cumulative.dtype).unsqueeze(-1) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=log_probs.size(-1) - 1)


def uniform(seeds: Tensor, positions: Tensor) -> Tensor:
    """Uniforms in [0, 1) of (seed, position): splitmix64 (Steele et al. 2014) in wrapping int64."""
    # The mix maps 0 to 0, so the increment comes before it: else seed 0 would begin with exactly 0.
    x = _mix(seeds.long() + GOLDEN) + (positions.long() + 1) * GOLDEN
    bits = (_mix(x) >> 12) & ((1 << 52) - 1)
    return bits.to(accumulator_dtype(x.device)) / (1 << 52)


def _mix(x: Tensor) -> Tensor:
    # Masks make the arithmetic shifts of int64 logical.
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & ((1 << 33) - 1))
