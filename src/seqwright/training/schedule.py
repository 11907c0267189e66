"""Learning-rate schedules: pure functions from a step to a ratio of the peak learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from seqwright.training.config import TrainingConfig

Schedule = Callable[[int], float]

INITIAL_LR_RATIO = 1 / 25
"""Initial ratio of one-cycle (div_factor 25 in PyTorch's OneCycleLR)."""
RISE_FRACTION = 0.3
"""Fraction of the steps over which one-cycle rises (pct_start)."""
DECAY_FRACTION = 0.2
"""Fraction of the steps after warmup over which warmup-stable-decay decays."""


def constant(step: int, steps: int, final: float) -> float:
    """No decay."""
    return 1.0


def linear(step: float, steps: float, final: float) -> float:
    """Linear decay from 1 to `final`."""
    return 1 - (1 - final) * step / max(1, steps)


def cosine(step: float, steps: float, final: float) -> float:
    """Cosine decay from 1 to `final` (Loshchilov & Hutter 2017)."""
    return final + (1 - final) * (1 + math.cos(math.pi * step / max(1, steps))) / 2


def wsd(step: int, steps: int, final: float) -> float:
    """Warmup-stable-decay: constant until the last fifth, then linear decay to `final` (Hu et al. 2024). Checkpoints of
    the stable phase can be decayed or trained further at any time."""
    stable = (1 - DECAY_FRACTION) * steps
    return 1.0 if step < stable else linear(step - stable, steps - stable, final)


DECAYS: dict[str, Callable[[int, int, float], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "wsd": wsd,
    "plateau": constant,  # the trainer reduces it when validation stops improving
}


def inverse_root(step: int, warmup: int) -> float:
    """Inverse square root decay after warmup (Vaswani et al. 2017), independent of the number of steps."""
    return math.sqrt(max(1, warmup) / (step + 1))  # the paper counts steps from 1


def one_cycle(step: int, steps: int, final: float) -> float:
    """One-cycle: cosine rise from 1/25 over the first 30 % of the steps, then cosine decay to `final` (Smith 2018)."""
    peak = RISE_FRACTION * steps
    return cosine(peak - step, peak, INITIAL_LR_RATIO) if step < peak else cosine(step - peak, steps - peak, final)


KINDS = (*DECAYS, "inverse-root", "one-cycle")
ENDLESS = ("constant", "plateau", "inverse-root")
"""Schedules that do not depend on the total number of steps: longer training continues them unchanged."""


def warmup_steps(config: TrainingConfig, steps: int) -> int:
    """Steps of learning-rate warmup: the recipe's, but at most half of all; by default a tenth, at most 100."""
    return min(100, steps // 10) if config.warmup_steps is None else min(config.warmup_steps, steps // 2)


def length_ratio(config: TrainingConfig, length: int) -> float:
    """Factor of the learning rate for rows of random length: otherwise a mean gradient of few tokens would count as
    much as one of many (Merity et al. 2018)."""
    return length / config.sequence_length if config.bptt_jitter and config.sequence_length else 1.0


def schedule(kind: str, *, steps: int, warmup: int, final: float) -> Schedule:
    """step → ratio of the peak learning rate: linear warmup over `warmup` steps, then decay until `steps`.

    one-cycle has its own warmup instead.
    """

    def ratio(step: int) -> float:
        if kind == "one-cycle":
            return one_cycle(min(step, steps), steps, final)
        if step < warmup:
            return (step + 1) / warmup  # not 0 at the first step, which would train nothing
        if kind == "inverse-root":
            return inverse_root(step, warmup)
        return DECAYS[kind](min(step, steps) - warmup, steps - warmup, final)

    return ratio
