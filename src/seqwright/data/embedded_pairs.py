"""Pairs that every machine can make: dates in two languages, and what Python's standard library says of itself."""

from __future__ import annotations

from collections.abc import Callable

from seqwright.config import UserError, did_you_mean
from seqwright.data.pair_formats import Pair

PAIRS: dict[str, Callable[[], list[Pair]]] = {}


def embedded_pairs(name: str) -> list[Pair]:
    """The pairs that `embedded:NAME` stands for."""
    if name not in PAIRS:
        raise UserError(f"no embedded pairs '{name}'.{did_you_mean(name, PAIRS)}")
    return PAIRS[name]()
