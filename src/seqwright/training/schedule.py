"""Learning-rate schedules: pure functions from a step to a share of the full rate."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(step: int, steps: int, final: float) -> float:
    return 1.0


def linear(step: int, steps: int, final: float) -> float:
    """A straight line from 1 to `final`."""
    return 1 - (1 - final) * step / max(1, steps)


def cosine(step: int, steps: int, final: float) -> float:
    """Half a cosine from 1 to `final` (Loshchilov & Hutter 2017)."""
    return final + (1 - final) * (1 + math.cos(math.pi * step / max(1, steps))) / 2


DECAYS: dict[str, Callable[[int, int, float], float]] = {"constant": constant, "linear": linear, "cosine": cosine}


def schedule(kind: str, *, steps: int, warmup: int, final: float) -> Schedule:
    """step → share of the rate: a straight rise over `warmup` steps, then the decay of that kind until `steps`."""
    decay = DECAYS[kind]

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return decay(min(step, steps) - warmup, steps - warmup, final)

    return share
