"""Products of training by oneDNN are those of PyTorch, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from seqwright.layers import linear
from seqwright.layers.inference import packed_linear

pytestmark = pytest.mark.skipif(not packed_linear.available(), reason="this machine has no oneDNN kernels")


@pytest.fixture(autouse=True)
def small_products_of_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "prefers_onednn", lambda: True)
    monkeypatch.setattr(linear, "MIN_PRODUCT", 0)


def gradients(x: Tensor, weight: Tensor, bias: Tensor | None, upstream: Tensor, function: object) -> list[Tensor]:
    """The product and the gradients of what it is made of."""
    given = [tensor.detach().clone().requires_grad_() for tensor in (x, weight, bias) if tensor is not None]
    out = function(*given)  # type: ignore[operator]
    out.backward(upstream.to(out.dtype))
    return [out.detach(), *(tensor.grad for tensor in given if tensor.grad is not None)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 3), (16, 300), (300, 16), (65, 64)])
@pytest.mark.parametrize("rows", [(1,), (7,), (3, 1), (4, 50)])
def test_product_and_gradients_are_those_of_float64(
    rows: tuple[int, ...], inputs: int, outputs: int, bias: bool
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(*rows, inputs), torch.randn(outputs, inputs)
    added, upstream = torch.randn(outputs) if bias else None, torch.randn(*rows, outputs)
    assert linear.has_kernel(x, weight.requires_grad_())
    got = gradients(x, weight, added, upstream, linear.linear)
    expected = gradients(
        x.double(), weight.double(), None if added is None else added.double(), upstream.double(), F.linear
    )
    for one, other in zip(got, expected, strict=True):
        assert_close(one.double(), other, rtol=1e-5, atol=1e-4)


def test_inputs_and_gradients_of_other_strides() -> None:
    x, weight = torch.randn(40, 30, requires_grad=True), torch.randn(20, 40, requires_grad=True)
    for function in (linear.linear, F.linear):
        function(x.T, weight).sum().backward()  # its gradient is one number, expanded
    plain = torch.autograd.grad(F.linear(x.T, weight).sum(), (x, weight))
    assert_close(x.grad, 2 * plain[0])
    assert_close(weight.grad, 2 * plain[1])


def test_a_single_vector_takes_pytorchs_product() -> None:
    x, weight, upstream = torch.randn(8), torch.randn(16, 8), torch.randn(16)
    for one, other in zip(
        gradients(x, weight, None, upstream, linear.linear), gradients(x, weight, None, upstream, F.linear), strict=True
    ):
        assert torch.equal(one, other)


def test_layers_of_a_module_are_plain_where_nothing_is_trained() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    plain = copy.deepcopy(module)
    linear.use_in(module)
    x = torch.randn(5, 8)
    assert "_Linear" in type(module[0](x).grad_fn).__name__
    assert_close(module(x), plain(x))
    with torch.no_grad():
        assert torch.equal(module(x), plain(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(x), plain(x))
    module[0].weight.requires_grad_(False)
    assert "_Linear" not in type(module[0](x).grad_fn).__name__
    assert module.state_dict().keys() == plain.state_dict().keys()


def test_compiled_layers_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(5, 8), torch.randn(16, 8, requires_grad=True)
    assert linear.has_kernel(x, weight)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not linear.has_kernel(x, weight)


def test_a_copy_of_a_module_uses_its_own_weights() -> None:
    module = nn.Sequential(nn.Linear(8, 16))
    linear.use_in(module)
    copied = copy.deepcopy(module)
    with torch.no_grad():
        module[0].weight.zero_()
    assert copied(torch.ones(1, 8)).abs().sum() > module(torch.ones(1, 8)).abs().sum()
