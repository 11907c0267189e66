"""The compiled loss and its gradient are those of PyTorch in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers.cross_entropy import cross_entropy
from seqwright.layers.softmax_loss import SoftmaxLoss, has_kernel, kernels

pytestmark = pytest.mark.skipif(kernels() is None, reason="this machine has no C compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("vocabulary", [1, 7, 16, 65, 1000])
def test_loss_and_gradient_are_those_of_float64(dtype: torch.dtype, smoothing: float, vocabulary: int) -> None:
    torch.manual_seed(0)
    logits = (5 * torch.randn(33, vocabulary)).to(dtype).requires_grad_()
    target = torch.randint(0, vocabulary, (33,))
    target[[4, 20]] = IGNORE
    assert has_kernel(logits, target)
    exact = logits.detach().double().requires_grad_()
    expected = F.cross_entropy(exact, target, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
    total = SoftmaxLoss.apply(logits, target, smoothing)
    assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
    (0.25 * expected).backward()
    (0.25 * total).backward()
    assert logits.grad is not None
    assert exact.grad is not None
    rounding = {"rtol": 2**-8, "atol": 1e-7} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-7}
    assert_close(logits.grad.double(), exact.grad, **rounding)
    assert not logits.grad[[4, 20]].any()


def test_logits_of_minus_infinity_have_no_gradient() -> None:
    logits = torch.randn(3, 40)
    logits[:, 5:30] = -torch.inf
    logits.requires_grad_()
    SoftmaxLoss.apply(logits, torch.tensor([0, 1, 39]), 0.0).backward()
    assert logits.grad is not None
    assert torch.equal(logits.grad[:, 5:30], torch.zeros(3, 25))
    assert_close(logits.grad.sum(1), torch.zeros(3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_large_logits_are_compared_before_they_are_rounded(smoothing: float) -> None:
    """Near 1e6 a float is rounded to sixteenths; log-probabilities are of differences."""
    logits = torch.full((2, 40), 1e6 - 1)
    logits[:, [3, 35]] = 1e6
    logits[1] -= 2e6
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    target = torch.tensor([3, 35])
    expected = F.cross_entropy(exact, target, reduction="sum", label_smoothing=smoothing)
    total = SoftmaxLoss.apply(logits, target, smoothing)
    assert_close(total.double(), expected, rtol=1e-6, atol=0)
    expected.backward()
    total.backward()
    assert logits.grad is not None
    assert exact.grad is not None
    assert_close(logits.grad.double(), exact.grad, rtol=1e-5, atol=1e-7)


def test_undefined_logits_have_an_undefined_loss() -> None:
    logits = torch.randn(2, 40)
    logits[1, 3] = torch.nan
    logits.requires_grad_()
    total = SoftmaxLoss.apply(logits, torch.tensor([0, 1]), 0.0)
    total.backward()
    assert logits.grad is not None
    assert total.isnan()
    assert logits.grad[1].isnan().all()
    assert logits.grad[0].isfinite().all()


@pytest.mark.parametrize("wrong", [9, -3])
def test_targets_outside_the_vocabulary_are_refused(wrong: int) -> None:
    hidden, weight = torch.randn(4, 8), torch.randn(9, 8, requires_grad=True)
    with pytest.raises(IndexError, match="out of bounds"):
        cross_entropy(hidden, weight, None, torch.tensor([1, 2, wrong, 0]))


@pytest.mark.parametrize(
    ("target", "error"), [(torch.arange(4, dtype=torch.int32), RuntimeError), (torch.arange(6), ValueError)]
)
def test_targets_that_do_not_fit_are_refused(target: torch.Tensor, error: type[Exception]) -> None:
    """By PyTorch: compiled C would read beside them."""
    hidden, weight = torch.randn(4, 8), torch.randn(9, 8, requires_grad=True)
    with pytest.raises(error, match=r"dtype|batch_size"):
        cross_entropy(hidden, weight, None, target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_targets_and_logits_that_lie_apart(dtype: torch.dtype) -> None:
    """A batch without targets has loss and gradients 0; views are read in their order."""
    hidden, weight = torch.randn(4, 8, dtype=dtype), torch.randn(40, 8, dtype=dtype, requires_grad=True)
    total, count = cross_entropy(hidden, weight, None, torch.full((4,), IGNORE))
    total.backward()
    assert (total.item(), count.item()) == (0, 0)
    assert weight.grad is not None
    assert not weight.grad.any()
    logits, target = torch.randn(40, 6, dtype=dtype, requires_grad=True), torch.randint(0, 40, (6, 2))[:, 1]
    apart = SoftmaxLoss.apply(logits.T, target, 0.1)
    assert_close(apart, F.cross_entropy(logits.T.float(), target, reduction="sum", label_smoothing=0.1))
    (gradient,) = torch.autograd.grad(apart, logits)
    (whole,) = torch.autograd.grad(SoftmaxLoss.apply(logits.T.contiguous(), target, 0.1), logits)
    assert torch.equal(gradient, whole)


def test_loss_is_that_of_evaluation() -> None:
    """Law: what has no gradient is computed by PyTorch."""
    torch.manual_seed(0)
    hidden, weight, target = torch.randn(6, 8), torch.randn(30, 8, requires_grad=True), torch.randint(0, 30, (6,))
    trained, count = cross_entropy(hidden, weight, None, target, smoothing=0.1)
    with torch.no_grad():
        evaluated, _ = cross_entropy(hidden, weight, None, target, smoothing=0.1)
    assert count == 6
    assert_close(trained.detach(), evaluated)
