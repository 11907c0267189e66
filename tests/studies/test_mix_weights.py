"""Weights of a mixture: which runs add next to nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqwright.studies.mix_weights import idle_parts


@pytest.mark.parametrize(
    ("weights", "warnings"),
    [
        ([0.5, 0.5], []),
        ([0.99, 0.01], []),
        ([0.995, 0.005], ["b has 0.50 % of the weight, so it adds next to nothing but cost; a alone is as good."]),
        ([1.0, 1e-9], ["b has 0.00 % of the weight, so it adds nothing but cost; a alone is as good."]),
        (
            [2.0, 1.0, 0.001],
            ["c has 0.03 % of the weight, so it adds next to nothing but cost; mix the others"],
        ),
    ],
)
def test_runs_of_less_than_a_percent_are_named(weights: list[float], warnings: list[str]) -> None:
    """Of geometric weights, which need not sum to 1, too."""
    found = list(idle_parts([Path(name) for name in "abc"[: len(weights)]], np.array(weights)))
    assert len(found) == len(warnings)
    assert all(one.startswith(start) for one, start in zip(found, warnings, strict=True))
