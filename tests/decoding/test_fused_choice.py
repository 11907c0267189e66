"""Beams chosen by kernels are those of PyTorch's operations: in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seqwright.decoding import fused_choice
from seqwright.decoding.options import SearchOptions
from seqwright.decoding.processors import LogitsProcessors

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is a part of PyTorch for GPUs")
def test_beams_chosen_by_kernels_equal_plain_ones() -> None:
    """In a process of its own: Triton decides on import whether it interprets."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-m", "tests.decoding.fused_search"], env=environment, check=True, timeout=300)


@pytest.mark.parametrize(
    ("options", "dtype", "expected"),
    [
        ({"beam_size": 5}, torch.float32, True),
        ({"beam_size": 1, "stopping": "bound"}, torch.float32, True),
        ({"beam_size": 5}, torch.float64, False),
        ({"beam_size": 4, "beam_groups": 2}, torch.float32, False),
        ({"beam_size": 20}, torch.float32, False),
        ({"beam_size": 5, "finished": 1000}, torch.float32, False),
    ],
)
def test_kernels_choose_few_beams_of_one_group_in_float32(
    options: dict[str, Any], dtype: torch.dtype, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_choice, "has_beam_kernels", lambda device: True)
    asked = SearchOptions(**options)
    processors = LogitsProcessors.of([asked], eos=2, banned=[0, 1], device="cpu")
    assert fused_choice.covers(torch.zeros(3, 50_257, dtype=dtype), asked, processors) == expected
