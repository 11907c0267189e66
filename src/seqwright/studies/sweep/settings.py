"""Settings of a sweep: values of recipe keys, combined as a grid or drawn at random."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqwright.core.config import UserError, parse_override

RANGE = re.compile(r"(-?[\d.]+(?:[eE][-+]?\d+)?)\.\.(-?[\d.]+(?:[eE][-+]?\d+)?)")
SEED = "training.seed"
DRAWS = 100
"""Draws for each wanted setting, before there are taken to be no more that differ."""

Setting = dict[str, str]
"""Dotted keys and their values in TOML, as `--set` takes them."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends, drawn log-uniformly where both are positive (Bergstra & Bengio 2012)."""

    low: float
    high: float
    integer: bool

    def draw(self, generator: random.Random) -> str:
        if self.low > 0:
            value = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = generator.uniform(self.low, self.high)
        return str(round(value)) if self.integer else f"{value:.4g}"


Space = Mapping[str, Sequence[str] | Range]
"""The values that each swept key may have."""


def parse_space(overrides: Sequence[str]) -> tuple[list[str], dict[str, Sequence[str] | Range]]:
    """Overrides with one value, which all runs share, and the values of swept keys: `KEY=A,B,C` or `KEY=LOW..HIGH`."""
    fixed: list[str] = []
    space: dict[str, Sequence[str] | Range] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        key = key.strip()
        if ends := RANGE.fullmatch(text.strip()):
            space[key] = _range(override, ends[1], ends[2])
        elif len(values := split_values(text)) > 1:
            space[key] = list(dict.fromkeys(values))
        else:
            parse_override(override)
            fixed.append(override)
    if SEED in space:
        raise UserError("seeds are repetitions, no setting to choose: take --seeds N in place of training.seed.")
    return fixed, space


def split_values(text: str) -> list[str]:
    """The values between commas; those in brackets and quotes stay together: `[3,4],[5]` has two."""
    values, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if character == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values if value.strip()]


def grid(space: Space) -> list[Setting]:
    """Every combination of values, the first key slowest."""
    for key, values in space.items():
        if isinstance(values, Range):
            raise UserError(f"{key} has a range, which only --random N draws from; list its values: {key}=A,B,C.")
    listed = [[(key, value) for value in values] for key, values in space.items() if not isinstance(values, Range)]
    return [dict(combination) for combination in itertools.product(*listed)]


def random_settings(space: Space, count: int, seed: int) -> list[Setting]:
    """`count` different settings (fewer where there are no more), each key drawn independently."""
    generator = random.Random(seed)

    def draws() -> Iterator[Setting]:
        for _ in range(DRAWS * count):
            yield {
                key: values.draw(generator) if isinstance(values, Range) else generator.choice(list(values))
                for key, values in space.items()
            }

    different = {tuple(setting.items()): setting for setting in draws()}
    return list(itertools.islice(different.values(), count))


def overrides_of(setting: Mapping[str, str]) -> list[str]:
    """The setting as `--set` takes it."""
    return [f"{key}={value}" for key, value in setting.items()]


def value_of(setting: Mapping[str, str], key: str) -> Any:
    """The parsed value of a key."""
    return parse_override(f"{key}={setting[key]}")[1]


def _range(override: str, low: str, high: str) -> Range:
    try:
        ends = float(low), float(high)
    except ValueError:
        raise UserError(f"--set {override}: the ends of a range are numbers, as in 1e-4..1e-2.") from None
    if ends[0] >= ends[1]:
        raise UserError(f"--set {override}: the low end of a range comes first and is lower.")
    return Range(low=ends[0], high=ends[1], integer=low.lstrip("-").isdigit() and high.lstrip("-").isdigit())
