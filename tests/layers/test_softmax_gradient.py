"""Triton's kernels of softmax cross-entropy in its interpreter on a CPU: PyTorch's loss and gradient."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

# Rows whose greatest logit comes late, far above the rest, once and twice; a target that is one of them; no target.
INTERPRETED = """
import torch
from seqwright.core.batch import IGNORE
from seqwright.layers import softmax_gradient
from seqwright.layers.cross_entropy import loss_and_gradient_

torch.manual_seed(1)
softmax_gradient.BLOCK = 128
size, width = 1000, 1024
for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 2e-3)):
    for smoothing in (0.0, 0.1):
        logits = 3 * torch.randn(9, width)
        logits[1:4, 900], logits[2, 999] = 60, 110
        logits = logits.to(dtype)
        target = torch.randint(size, (9,))
        target[3], target[4] = 900, IGNORE
        exact = logits.double()
        expected, _ = loss_and_gradient_(exact, target, size, smoothing)
        loss, factor = softmax_gradient.loss_and_gradient_(logits, target, size, smoothing)
        assert (factor is None) == (smoothing > 0 or dtype == torch.float16)
        gradient = logits.double() if factor is None else logits.double() * factor.double().unsqueeze(1)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
        torch.testing.assert_close(gradient, exact, rtol=tolerance, atol=1e-6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is a part of PyTorch for GPUs")
def test_kernels_equal_pytorchs_operations() -> None:
    """In a process of its own: Triton decides on import whether it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True, timeout=300)
