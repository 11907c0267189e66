"""Divergence: a loss that is not finite, or worse than chance after the warm-up, ends a training with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seqwright.core.batch import EncoderSizes, Vocabularies, Vocabulary
from seqwright.core.config import UserError

MIN_STEPS = 20
"""Steps after the warm-up before a loss can count: the first updates of a healthy training may overshoot."""
MARGIN = 1.2
"""How much worse than chance and than the first step both losses must be: noise of short trainings is below."""
HOPELESS = 10.0
"""How much worse they must be to count at once: no healthy training overshoots so far, not even in its first steps."""
MAX_WORSE = 3
"""Log lines in a row with a training loss worse than chance that end a training before its next evaluation."""

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


@dataclass(frozen=True, kw_only=True)
class DivergenceCheck:
    """Compares losses with chance and with the loss of the first step."""

    chance: float | None
    """NLL of a uniform guess; None where losses cannot be compared with it."""
    warmup: int
    rate: float

    def is_worse(self, loss: float, *, step: int, initial: float | None) -> bool:
        """Whether a loss is worse than both; before MIN_STEPS after the warm-up, far worse."""
        if self.chance is None or initial is None:
            return False
        return loss > (MARGIN if step > self.warmup + MIN_STEPS else HOPELESS) * max(self.chance, initial)

    def refuse(self, *, step: int, loss: float, nll: float = math.inf, initial: float | None) -> None:
        """Raises where the training loss and the validation loss `nll` (infinite: not known) are worse.

        Both, because an overfitted model may be worse than chance on validation data, but never on its training data.
        """
        if not self.is_worse(min(nll, loss), step=step, initial=initial):
            return
        validation = f" and the validation loss {nll:.4g}" if math.isfinite(nll) else ""
        raise DivergenceError(
            f"training diverged: at step {step:,} the training loss is {loss:.4g} nats{validation},"
            f" worse than chance (log V = {self.chance:.4g}). Train again in another folder with a lower rate, as in"
            f" --set training.learning_rate={min(self.rate / 10, SAFE_RATE):.1g}, or a longer warm-up"
            " (training.warmup_steps)."
        )
