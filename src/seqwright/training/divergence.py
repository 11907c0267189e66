"""Divergence: a loss that is not finite, or worse than chance after the warm-up, ends a training with its reason."""

from __future__ import annotations

import math

from seqwright.core.batch import EncoderSizes, Vocabularies, Vocabulary
from seqwright.core.config import UserError

MIN_STEPS = 20
"""Steps after the warm-up before a loss can count: the first updates of a healthy training may overshoot."""
MARGIN = 1.2
"""How much worse than chance and than the first step both losses must be: noise of short trainings is below."""

SAFE_RATE = 1e-3
"""A learning rate at which models of any size here train (AdamW)."""


class DivergenceError(UserError):
    """Training diverged: no later step would mend it."""


def chance_nll(sizes: Vocabulary | Vocabularies | EncoderSizes) -> float | None:
    """NLL of the uniform distribution over the outputs, log V, in nats; None where the loss is no NLL of one output."""
    if isinstance(sizes, Vocabulary):
        return math.log(sizes.size)
    if isinstance(sizes, Vocabularies):
        return math.log(sizes.target.size)
    return math.log(sizes.answers.count) if sizes.answers.kind in ("class", "tags", "tokens") else None


def refuse_divergence(*, step: int, nll: float, loss: float, initial: float, chance: float, rate: float) -> None:
    """Raises where training and validation loss are worse than chance and than the loss of the first step.

    Both, because an overfitted model may be worse than chance on validation data, but never on its training data.
    """
    if min(nll, loss) <= MARGIN * max(chance, initial):
        return
    validation = f" and the validation loss {nll:.4g}" if math.isfinite(nll) else ""
    raise DivergenceError(
        f"training diverged: at step {step:,} the training loss is {loss:.4g} nats{validation},"
        f" worse than chance (log V = {chance:.4g}). Train again in another folder with a lower rate, as in --set"
        f" training.learning_rate={min(rate / 10, SAFE_RATE):.1g}, or a longer warm-up (training.warmup_steps)."
    )
