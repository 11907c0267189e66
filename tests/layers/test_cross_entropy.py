"""Chunked cross-entropy equals the plain one in value and gradients, and bounds the memory of logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from seqwright.core.batch import IGNORE
from seqwright.layers import cross_entropy as module
from seqwright.layers.cross_entropy import cross_entropy, token_log_probs

ROWS, STEPS, WIDTH, VOCABULARY = 3, 5, 6, 13


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states, weight, bias and targets, some of them IGNOREd."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, STEPS, WIDTH, generator=generator, dtype=dtype)
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator, dtype=dtype)
    bias = torch.randn(VOCABULARY, generator=generator, dtype=dtype)
    target = torch.randint(VOCABULARY, (ROWS, STEPS), generator=generator)
    target[0, 2:] = IGNORE
    target[2, 0] = IGNORE
    return hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), target


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("max_logits", [1, VOCABULARY, 4 * VOCABULARY, 7 * VOCABULARY + 5])
def test_chunked_cross_entropy_equals_plain_in_value_and_gradient(
    max_logits: int, biased: bool, smoothing: float
) -> None:
    hidden, weight, bias, target = example()
    parameters = [hidden, weight, bias] if biased else [hidden, weight]
    results = []
    for limit in (1 << 26, max_logits):
        total, count = cross_entropy(
            hidden, weight, bias if biased else None, target, smoothing=smoothing, max_logits=limit
        )
        results.append((total, count, torch.autograd.grad(total / 7, parameters)))
    (plain, count, gradients), (chunked, chunked_count, chunked_gradients) = results
    assert count == chunked_count == (target != IGNORE).sum()
    assert_close(chunked, plain, rtol=1e-12, atol=1e-12)
    assert_close(chunked_gradients, gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("biased", [True, False])
def test_gradients_of_logits_may_have_a_factor_for_each_row(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the kernel that reads logits once."""
    hidden, weight, bias, target = example()
    parameters = [hidden, weight, bias] if biased else [hidden, weight]
    factors = iter(torch.rand(ROWS * STEPS, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 0.5)

    def divided(logits: Tensor, target: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
        loss, _ = module.loss_and_gradient_(logits, target, size, smoothing)
        factor = torch.stack([next(factors) for _ in target])
        logits /= factor.unsqueeze(1)
        return loss, factor

    results = []
    for max_logits in (1 << 26, 2 * VOCABULARY):
        total, _ = cross_entropy(hidden, weight, bias if biased else None, target, max_logits=max_logits)
        results.append((total, *torch.autograd.grad(total / 7, parameters)))
        monkeypatch.setattr(module, "_loss_and_gradient", lambda device: divided)
    assert_close(results[1], results[0], rtol=1e-12, atol=1e-12)


def test_cross_entropy_with_label_smoothing_is_the_definition() -> None:
    hidden, weight, bias, target = example()
    smoothing = 0.1
    total, _ = cross_entropy(hidden, weight, bias, target, smoothing=smoothing)
    log_probs = (hidden @ weight.T + bias).log_softmax(-1)
    expected = 0.0
    for row in range(ROWS):
        for step in range(STEPS):
            if target[row, step] != IGNORE:
                vector = log_probs[row, step]  # (V,)
                expected -= (1 - smoothing) * vector[target[row, step]] + smoothing * vector.mean()
    assert_close(total, expected)


def test_tied_weight_accumulates_both_gradients() -> None:
    _, weight, _, target = example()
    ids = torch.randint(VOCABULARY, target.shape, generator=torch.Generator().manual_seed(1))
    gradients = []
    for max_logits in (1 << 26, 2 * VOCABULARY):
        hidden = torch.tanh(F.embedding(ids, weight))  # output layer tied to the embedding
        total, _ = cross_entropy(hidden, weight, None, target, max_logits=max_logits)
        gradients.append(torch.autograd.grad(total, weight)[0])
    assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-12)


def test_chunked_cross_entropy_under_autocast_equals_plain_to_half_precision() -> None:
    hidden, weight, bias, target = example(torch.float32)
    parameters = [hidden, weight, bias]
    results = []
    for max_logits in (1 << 26, 2 * VOCABULARY):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, _ = cross_entropy(hidden, weight, bias, target, max_logits=max_logits)
        assert total.dtype == torch.float32
        results.append((total, torch.autograd.grad(total, parameters)))
    (plain, gradients), (chunked, chunked_gradients) = results
    assert_close(chunked, plain, rtol=2e-3, atol=0)
    for ours, theirs in zip(chunked_gradients, gradients, strict=True):
        assert ours.dtype == torch.float32
        assert_close(ours, theirs, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("max_logits", [1 << 26, VOCABULARY])
def test_cross_entropy_without_targets_has_zero_loss_and_gradient(max_logits: int) -> None:
    hidden, weight, bias, target = example()
    total, count = cross_entropy(
        hidden, weight, bias, torch.full_like(target, IGNORE), smoothing=0.1, max_logits=max_logits
    )
    assert total == 0
    assert count == 0
    for gradient in torch.autograd.grad(total, [hidden, weight, bias]):
        assert (gradient == 0).all()


def test_cross_entropy_computes_at_most_max_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, target = example()
    sizes = []
    linear = F.linear

    def recorded(*arguments: Tensor) -> Tensor:
        logits = linear(*arguments)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(F, "linear", recorded)
    max_logits = 4 * VOCABULARY + 1
    total, count = cross_entropy(hidden, weight, bias, target, max_logits=max_logits)
    total.backward()
    assert sum(sizes) == count * VOCABULARY  # none for positions without a target
    monkeypatch.setattr(module, "MAX_LOGITS", max_logits)
    token_log_probs(hidden, weight, bias, target)
    assert sum(sizes) == (count + ROWS * STEPS) * VOCABULARY
    assert max(sizes) <= max_logits


@pytest.mark.parametrize("max_logits", [1 << 26, 3 * VOCABULARY, 1])
def test_token_log_probs_in_chunks(max_logits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGITS", max_logits)
    hidden, weight, bias, target = example()
    scored = token_log_probs(hidden, weight, bias, target)
    log_probs = (hidden @ weight.T + bias).log_softmax(-1)
    expected = log_probs.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    assert_close(scored, expected.masked_fill(target == IGNORE, 0.0))
