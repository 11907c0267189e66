"""Back-off of an n-gram: the order, counts and weights behind the probability of a token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqwright.core.config import UserError
from seqwright.core.protocols import ExplainsBackOff
from seqwright.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class BackOff:
    """The n-gram that was used for a token, and the back-off weights of longer contexts."""

    token: str
    probability: float
    order: int
    """Length of the n-gram."""
    context: list[str]
    """Its tokens but the last."""
    count: int | None
    """How often it was counted (in how many contexts, below the highest order of Kneser-Ney); None where not kept."""
    discount: float
    """What was taken from that count."""
    total: int | None
    """Counts of all tokens after the context: the denominator; None where the smoothing has another."""
    followers: int | None
    """Distinct tokens after the context, whose discounts make up the weight of the shorter context."""
    interpolated: float | None
    """Weight of the context times the probability after the shorter one; for unigrams, their share of the uniform
    distribution. (count - discount) / total + interpolated is the probability before `weights`."""
    weights: list[float]
    """Back-off weights of the longer contexts that were seen, but not with this token after them: the longest first."""


def back_off(model: ExplainsBackOff, tokenizer: Tokenizer, context: Sequence[int], id: int) -> BackOff:
    """How an n-gram came to the probability of an id after a context."""
    if not isinstance(id, int | np.integer) or not 0 <= id < tokenizer.size:
        raise UserError(f"{id!r} is no id below {tokenizer.size:,}; run.tokenizer.encode(text) has those of a text.")
    *longer, used = model.trace(context, id)
    own = math.exp(used.log_prob)
    interpolated = None
    if used.total:
        shorter = None if used.weight is None else model.trace(used.context[1:], id)
        interpolated = own - (used.count - used.discount) / used.total if shorter is None else 0.0
        if shorter is not None and used.weight:
            lower = math.fsum(step.back_off if step.log_prob is None else step.log_prob for step in shorter)
            interpolated = used.weight * math.exp(lower)
        if not math.isclose((used.count - used.discount) / used.total + interpolated, own, rel_tol=1e-5):
            interpolated = None  # add-k, Witten-Bell, stupid back-off and pruned tables divide by another number
    return BackOff(
        token=tokenizer.tokens([id])[0],
        probability=math.exp(used.log_prob + sum(step.back_off for step in longer)),
        order=len(used.context) + 1,
        context=tokenizer.tokens(used.context),
        count=used.count,
        discount=used.discount,
        total=None if interpolated is None else used.total,
        followers=used.followers,
        interpolated=interpolated,
        weights=[math.exp(step.back_off) for step in longer if step.seen],
    )
