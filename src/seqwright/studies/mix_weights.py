"""Warnings about the weights of a mixture: runs that add next to nothing to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seqwright.metrics.score import Floats

SMALLEST = 0.01
"""The share of all weights below which a run adds next to nothing."""


def idle_parts(paths: Sequence[Path], weights: Floats) -> Iterator[str]:
    """A warning for each run with less than SMALLEST of all weights: it costs memory and time for nothing."""
    shares = weights / weights.sum()
    kept = [path for path, share in zip(paths, shares, strict=True) if share >= SMALLEST]
    instead = f"{kept[0]} alone is as good" if len(kept) == 1 else "mix the others without it"
    for path, share in zip(paths, shares, strict=True):
        if share < SMALLEST:
            adds = "nothing" if share < SMALLEST / 1000 else "next to nothing"
            yield f"{path} has {100 * share:.2f} % of the weight, so it adds {adds} but cost; {instead}."
