"""Numbers that look drawn, made of numbers that do not: what hashes of words and texts end with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ over the golden ratio, and odd, so that its powers never vanish."""


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of the input on every bit of the output: the finalizer of SplitMix64 (Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
