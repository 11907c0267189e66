"""GELU is PyTorch's, also where kernels of our own compute it: those in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from seqwright.layers import gelu
from seqwright.layers.gelu import GELU

# The interpreter cuts off where the GPU rounds, so that bfloat16 may be off by a whole unit in the last place.
INTERPRETED = """
import torch
import torch.nn.functional as F
from seqwright.layers import gelu_kernel

torch.manual_seed(1)
for dtype, tolerance in ((torch.float32, 2e-5), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)):
    x, upstream = (4 * torch.randn(3, 1500, dtype=torch.float64)).to(dtype), torch.randn(3, 1500).to(dtype)
    exact = x.double().requires_grad_()
    expected = F.gelu(exact)
    expected.backward(upstream.double())
    torch.testing.assert_close(gelu_kernel.forward(x).double(), expected.detach(), rtol=tolerance, atol=tolerance)
    found = gelu_kernel.backward(x.t(), upstream.t()).double()  # not contiguous
    torch.testing.assert_close(found, exact.grad.t(), rtol=tolerance, atol=tolerance)
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_on_a_cpu_it_is_pytorchs(dtype: torch.dtype) -> None:
    x = torch.randn(5, 7, dtype=dtype)
    assert torch.equal(GELU()(x), F.gelu(x))
    assert torch.equal(GELU(approximate="tanh")(x), F.gelu(x, approximate="tanh"))


def test_the_operators_declare_their_outputs() -> None:
    """What torch.compile traces: shape, dtype and a contiguous layout."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.empty(4, 6, 8, dtype=torch.bfloat16).transpose(0, 1).requires_grad_()
        output = torch.ops.seqwright.gelu(x)
        output.sum().backward()
    assert output.shape == x.shape
    assert output.dtype == x.dtype
    assert output.is_contiguous()
    assert x.grad is not None


def test_only_gelu_with_erf_is_that_of_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, of which a fake tensor has the device alone."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    calls = []
    monkeypatch.setattr(gelu, "HAS_TRITON", True)
    monkeypatch.setattr(gelu, "fused_gelu", lambda x: calls.append(x.dtype) or x)
    with FakeTensorMode():
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.empty(4, 6, device="cuda", dtype=dtype)
            GELU()(x)
            GELU(approximate="tanh")(x)
    assert calls == [torch.bfloat16]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is a part of PyTorch for GPUs")
def test_kernels_equal_pytorchs_gelu() -> None:
    """In a process of its own: Triton decides on import whether it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True, timeout=300)
