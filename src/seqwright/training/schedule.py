"""Learning-rate schedules: pure functions from a step to a share of the full rate."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]

FIRST_SHARE = 1 / 25
"""Where one-cycle begins."""
RISING = 0.3
"""The part of the steps over which one-cycle rises."""
DECAYING = 0.2
"""The part of the steps over which warm-up-stable-decay falls."""


def constant(step: int, steps: int, final: float) -> float:
    return 1.0


def linear(step: float, steps: float, final: float) -> float:
    """A straight line from 1 to `final`."""
    return 1 - (1 - final) * step / max(1, steps)


def cosine(step: float, steps: float, final: float) -> float:
    """Half a cosine from 1 to `final` (Loshchilov & Hutter 2017)."""
    return final + (1 - final) * (1 + math.cos(math.pi * step / max(1, steps))) / 2


def wsd(step: int, steps: int, final: float) -> float:
    """Full until the last fifth, then a straight line to `final` (Hu et al. 2024): a run can be branched off its
    level part at any time, to be ended or to go on."""
    level = (1 - DECAYING) * steps
    return 1.0 if step < level else linear(step - level, steps - level, final)


DECAYS: dict[str, Callable[[int, int, float], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "wsd": wsd,
    "plateau": constant,  # the trainer lowers it when validation stands still
}


def inverse_root(step: int, warmup: int) -> float:
    """Falls with the root of the step from the end of the warm-up on (Vaswani et al. 2017); it has no end."""
    return math.sqrt(max(1, warmup) / (step + 1))


def one_cycle(step: int, steps: int, final: float) -> float:
    """Half a cosine up from 1/25 over three tenths of the steps, half a cosine down to `final` (Smith 2018)."""
    top = RISING * steps
    return cosine(top - step, top, FIRST_SHARE) if step < top else cosine(step - top, steps - top, final)


KINDS = (*DECAYS, "inverse-root", "one-cycle")
ENDLESS = ("constant", "plateau", "inverse-root")
"""Kinds that do not depend on how many steps there will be: asked for more, they go on as they were."""


def schedule(kind: str, *, steps: int, warmup: int, final: float) -> Schedule:
    """step → share of the rate: a straight rise over `warmup` steps, then the decay of that kind until `steps`.

    one-cycle has a rise of its own instead.
    """

    def share(step: int) -> float:
        if kind == "one-cycle":
            return one_cycle(min(step, steps), steps, final)
        if step < warmup:
            return (step + 1) / warmup
        if kind == "inverse-root":
            return inverse_root(step, warmup)
        return DECAYS[kind](min(step, steps) - warmup, steps - warmup, final)

    return share
