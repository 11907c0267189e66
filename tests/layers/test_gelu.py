"""GELU is PyTorch's, also where kernels of our own compute it: those in Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers import gelu
from seqwright.layers.gelu import GELU
from seqwright.layers.lora import add_lora, merge_lora
from seqwright.layers.transformer_block import FeedForward

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

# Tiles that end within the tensor and beyond it; more of them than a group has. Products of bfloat16 are wrong there.
gelu_kernel.ROWS, gelu_kernel.COLUMNS, gelu_kernel.INNER = 16, 32, 16
for shape, inner in (((3, 50, 72), 40), ((160, 96), 16)):
    x, upstream = (2 * torch.randn(shape)).half(), torch.randn(*shape[:-1], inner).half()
    weight = torch.randn(inner, shape[-1]).half()
    exact = x.double().requires_grad_()
    F.linear(F.gelu(exact), weight.double()).backward(upstream.double())
    found = gelu_kernel.linear_backward(x, upstream, weight).double()
    torch.testing.assert_close(found, exact.grad, rtol=1e-3, atol=5e-3)
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


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Has a CPU take the way of a GPU with kernels, by the operators' implementation for it; shapes of gradients that
    GELU and the layer after it have computed together."""
    monkeypatch.setattr(gelu, "has_kernels", lambda x: True)
    monkeypatch.setattr(gelu, "fused_gelu", F.gelu)
    monkeypatch.setattr(GELU, "forward", lambda self, x: F.gelu(x, approximate=self.approximate))
    calls: list[tuple[int, ...]] = []
    own = gelu.fused_gelu_linear_backward
    monkeypatch.setattr(
        gelu,
        "fused_gelu_linear_backward",
        lambda x, upstream, weight: calls.append(tuple(x.shape)) or own(x, upstream, weight),
    )
    return calls


def gradients(network: nn.Module, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """Output and gradients, of x first."""
    x = x.clone().requires_grad_()
    output = network(x)
    trained = [p for p in network.parameters() if p.requires_grad]
    return [output.detach(), *torch.autograd.grad(output, [x, *trained], upstream)]


def plain(network: FeedForward) -> nn.Module:
    return nn.Sequential(network.up, nn.GELU(), network.down)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 8)])
def test_a_feed_forward_network_of_kernels_has_the_gradients_of_its_layers(
    bias: bool, shape: tuple[int, ...], joined: list[tuple[int, ...]]
) -> None:
    network = FeedForward(8, 24, bias=bias).double()
    x, upstream = torch.randn(2, *shape, dtype=torch.float64)
    for _ in range(2):
        for one, other in zip(gradients(network, x, upstream), gradients(plain(network), x, upstream), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        network.down.requires_grad_(False)  # the gradient of the layer before it is the same
    assert joined == [(*shape[:-1], 24)] * 2


def test_a_feed_forward_network_of_kernels_rounds_as_under_autocast(joined: list[tuple[int, ...]]) -> None:
    network = FeedForward(16, 48)
    x, upstream = torch.randn(5, 16), torch.randn(5, 16)
    exact = gradients(plain(network), x, upstream)
    with torch.autocast("cpu", torch.bfloat16):
        ours, others = (gradients(each, x, upstream.bfloat16()) for each in (network, plain(network)))
    assert joined
    for one, other, right in zip(ours, others, exact, strict=True):
        assert one.dtype == other.dtype
        assert (one - right).norm() < 1.2 * (other - right).norm() + 1e-3


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_feed_forward_network_of_kernels_compiles(recomputed: bool, joined: list[tuple[int, ...]]) -> None:
    """In one graph, by what torch.compile traces for a GPU as well; and where activations are computed again."""
    from torch.utils.checkpoint import checkpoint

    torch.compiler.reset()
    network = FeedForward(8, 24).double()
    x, upstream = torch.randn(2, 2, 3, 8, dtype=torch.float64)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.network, x, use_reentrant=False) if recomputed else self.network(x)

    compiled: nn.Module = torch.compile(Whole(), backend="aot_eager", fullgraph=True)  # type: ignore[assignment]
    found = gradients(compiled, x, upstream)
    assert joined
    for one, other in zip(found, gradients(plain(network), x, upstream), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_networks_whose_layers_do_more_keep_their_own_gradients(joined: list[tuple[int, ...]]) -> None:
    """Hooks, which tensor parallelism and recordings set, LoRA, other activations, and no gradient at all."""
    x, upstream = torch.randn(5, 8), torch.randn(5, 8)
    seen = []
    for name in ("activation", "down"):
        network = FeedForward(8, 24)
        network.get_submodule(name).register_forward_hook(lambda *given, name=name: seen.append(name))
        gradients(network, x, upstream)
        gradients(torch.compile(network, backend="aot_eager"), x, upstream)  # type: ignore[arg-type]
    assert seen == ["activation", "activation", "down", "down"]
    for activation in ("relu", "gelu-tanh"):
        gradients(FeedForward(8, 24, activation=activation), x, upstream)
    adapted = nn.Sequential(FeedForward(8, 24))
    add_lora(adapted, rank=2, alpha=2)
    gradients(adapted, x, upstream)
    with torch.no_grad():
        FeedForward(8, 24)(x)
    assert not joined
    merge_lora(adapted)
    gradients(adapted.requires_grad_(), x, upstream)
    assert joined


def test_the_operators_of_a_linear_layer_are_sound() -> None:
    """PyTorch's own check: schema, declared outputs, autograd and compiled graphs, against the implementation."""
    x, activated, weight = torch.randn(4, 3, 8), torch.randn(4, 3, 8), torch.randn(5, 8)
    for bias in (None, torch.randn(5, requires_grad=True)):
        given = (x.clone().requires_grad_(), activated, weight.clone().requires_grad_(), bias)
        torch.library.opcheck(gelu.fused_gelu_linear, given)
    torch.library.opcheck(gelu.fused_gelu_linear_backward, (x, torch.randn(4, 3, 5), weight))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is a part of PyTorch for GPUs")
def test_kernels_equal_pytorchs_gelu() -> None:
    """In a process of its own: Triton decides on import whether it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True, timeout=300)
