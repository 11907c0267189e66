"""Fused decoding steps have the log-probabilities of plain ones: in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fused_steps.py")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is a part of PyTorch for GPUs")
def test_fused_steps_equal_plain_steps() -> None:
    """In a process of its own: Triton decides on import whether it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, str(SCRIPT)], env=environment, check=True, timeout=300)
