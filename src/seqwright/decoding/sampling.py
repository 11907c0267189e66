"""Sampling: how the next id is drawn, by a rule that does not know which other rows are in the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from seqwright.core.config import UserError, check_sizes
from seqwright.decoding.filters import min_p, temper, top_k, top_p, typical

GOLDEN = -7046029254386353131
"""0x9E3779B97F4A7C15, the step of splitmix64, as a signed number."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    max_tokens: int = 200
    """The most tokens said."""
    temperature: float = 1.0
    """Above 1 flattens the distribution, below 1 sharpens it; 0 always takes the most probable token (greedy)."""
    top_k: int | None = None
    """Only the k most probable tokens may be drawn."""
    top_p: float | None = None
    """Only the fewest tokens that hold this share of the probability may be drawn."""
    min_p: float | None = None
    """Only tokens at least this many times as probable as the best one may be drawn."""
    typical_p: float | None = None
    """Only the tokens of most typical surprise that hold this share of the probability may be drawn."""
    repetition_penalty: float = 1.0
    """Multiplies the log-probability of every token that prompt or output already has; above 1 discourages them."""
    presence_penalty: float = 0.0
    """Taken off the log-probability of a token that the output already has."""
    frequency_penalty: float = 0.0
    """Taken off the log-probability of a token for each time that the output already has it."""
    no_repeat_ngram: int | None = None
    """No n-gram of this many tokens is said that prompt or output already has."""
    banned_ids: tuple[int, ...] = ()
    """Ids that are never said."""
    forced_ids: tuple[int, ...] = ()
    """Ids with which the output begins."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs [id, number]: the number is added to the log-probability of the id."""
    stop: tuple[str, ...] = ()
    """Text that ends the output; it is not part of it."""
    seed: int = 0
    """The same seed, prompt and model give the same text, whatever else is in the batch."""

    def __post_init__(self) -> None:
        check_sizes(self, "max_tokens", "top_k", "no_repeat_ngram")
        check_seed(self.seed)
        if not 0 <= self.temperature < math.inf:
            raise UserError(f"temperature must be 0 (greedy) or more, not {self.temperature}.")
        for name in ("top_p", "min_p", "typical_p"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise UserError(f"{name} is a share of the probability: above 0 and at most 1, not {share}.")
        if self.repetition_penalty <= 0:
            raise UserError(f"repetition_penalty must be above 0 (1 changes nothing), not {self.repetition_penalty}.")
        if "" in self.stop:
            raise UserError("stop must not hold an empty string: it would end every output at once.")


def check_seed(seed: int) -> None:
    """Refuses a seed that no tensor can hold."""
    if not -(1 << 63) <= seed < 1 << 63:
        raise UserError(f"seed must fit in 64 bits, but is {seed}.")


def choose(log_probs: Tensor, options: SamplingOptions, seeds: Tensor, positions: Tensor) -> Tensor:
    """One id (B,) from each row of log-probabilities (B, V)."""
    if options.temperature == 0:
        return log_probs.argmax(-1)
    if options.temperature != 1:
        log_probs = temper(log_probs, options.temperature)
    if options.top_k is not None:
        log_probs = top_k(log_probs, options.top_k)
    if options.top_p is not None and options.top_p < 1:
        log_probs = top_p(log_probs, options.top_p)
    if options.min_p is not None:
        log_probs = min_p(log_probs, options.min_p)
    if options.typical_p is not None and options.typical_p < 1:
        log_probs = typical(log_probs, options.typical_p)
    return draw(log_probs, uniform(seeds, positions))


def draw(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative distribution: ids (B,) from log-probabilities (B, V) and uniforms (B,) in [0, 1)."""
    wide = log_probs if log_probs.device.type == "mps" else log_probs.double()
    cumulative = wide.exp().cumsum(-1)
    # Right of equal values: a token without probability adds nothing to the sum and is never reached.
    point = uniforms.to(cumulative.dtype).unsqueeze(-1) * cumulative[..., -1:]
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=log_probs.size(-1) - 1)


def uniform(seeds: Tensor, positions: Tensor) -> Tensor:
    """Numbers in [0, 1) that depend on (seed, position) alone: splitmix64 (Steele et al. 2014), wrapping int64."""
    # The mix leaves 0 where it is, so the golden step comes before it: else seed 0 would begin with exactly 0.
    x = _mix(seeds.long() + GOLDEN) + (positions.long() + 1) * GOLDEN
    return ((_mix(x) >> 12) & ((1 << 52) - 1)).to(torch.float32 if x.device.type == "mps" else torch.float64) / (
        1 << 52
    )


def _mix(x: Tensor) -> Tensor:
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * -4658895280553007687  # 0xBF58476D1CE4E5B9; the masks make shifts logical
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ ((x >> 31) & ((1 << 33) - 1))
