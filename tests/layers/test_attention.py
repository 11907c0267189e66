"""Scaled dot-product attention: the fused kernel equals weights @ value, under masks, biases and grouped heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqwright.layers.attention import Attend

B, H, T, K, E = 2, 3, 4, 6, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_mask(*shape: int) -> Tensor:
    """Random, but every position may attend to the first."""
    mask = random(*shape, seed=9) > 0
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    "mask",
    [None, random_mask(B, 1, 1, K), random_mask(1, 1, T, K), random_mask(B, 1, T, K)],
    ids=["no mask", "source mask", "position mask", "both"],
)
def test_attention_output_is_weights_times_value(mask: Tensor | None) -> None:
    query, key, value = random(B, H, T, E), random(B, H, K, E, seed=1), random(B, H, K, E, seed=2)
    weights = Attend().weights(query, key, mask=mask)  # (B, H, T, K)
    assert_close(Attend()(query, key, value, mask=mask), weights @ value)
    assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))
    if mask is not None:
        assert (weights.masked_select(~mask) == 0).all()


@pytest.mark.parametrize("groups", [1, H])
@pytest.mark.parametrize("mask", [None, random_mask(B, 1, T, K)], ids=["no mask", "masked"])
@pytest.mark.parametrize("rows", [None, 1, B])
def test_attention_output_with_bias_and_grouped_query_heads(groups: int, mask: Tensor | None, rows: int | None) -> None:
    query, key, value = random(B, H, T, E), random(B, groups, K, E, seed=1), random(B, groups, K, E, seed=2)
    bias = None if rows is None else random(rows, H, T, K, seed=3)
    weights = Attend().weights(query, key, mask=mask, bias=bias)  # (B, H, T, K)
    assert_close(Attend()(query, key, value, mask=mask, bias=bias), weights @ value.repeat_interleave(H // groups, 1))
    if bias is not None:
        assert (weights - Attend().weights(query, key, mask=mask)).abs().max() > 0.1


def test_causal_attention_output_is_causal_weights_times_value() -> None:
    query, key, value = random(B, H, T, E), random(B, H, T, E, seed=1), random(B, H, T, E, seed=2)
    weights = Attend().weights(query, key, causal=True)
    assert_close(Attend()(query, key, value, causal=True), weights @ value)
    assert (weights.triu(1) == 0).all()


def test_unscaled_attention_output_is_the_softmax_of_dot_products_times_value() -> None:
    query, key, value = random(B, H, T, E), random(B, H, K, E, seed=1), random(B, H, K, E, seed=2)
    attend = Attend(scaled=False)
    assert_close(attend.weights(query, key), (query @ key.transpose(-2, -1)).softmax(-1))
    assert_close(attend(query, key, value), attend.weights(query, key) @ value)


def test_attention_dropout_is_active_in_training_only() -> None:
    query, key, value = random(B, H, T, E), random(B, H, K, E, seed=1), random(B, H, K, E, seed=2)
    attend = Attend(dropout=0.5)
    torch.manual_seed(0)
    assert not torch.equal(attend(query, key, value), attend(query, key, value))
    attend.eval()
    assert_close(attend(query, key, value), Attend()(query, key, value))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("masking", ["causal", "mask", "bias"])
def test_bfloat16_trains_on_a_cpu_as_precisely_as_its_inputs(masking: str, autocast: bool) -> None:
    """Attention over few keys is computed in float32 there, which is faster; output and gradients are bfloat16."""
    torch.manual_seed(1)
    inputs = [torch.randn(2, 3, 9, 8).bfloat16() for _ in range(3)]
    options: dict[str, Any] = {"causal": masking == "causal"}
    allowed = torch.rand(1, 1, 9, 9) < 0.7
    allowed |= torch.eye(9, dtype=torch.bool)
    if masking == "mask":
        options["mask"] = allowed
    if masking == "bias":
        options["bias"] = torch.zeros(1, 1, 9, 9).masked_fill(~allowed, -torch.inf).bfloat16()
    found = []
    for dtype in (torch.bfloat16, torch.float64):
        given = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
        if dtype == torch.float64 and masking == "bias":
            options["bias"] = options["bias"].double()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast and dtype == torch.bfloat16):
            output = Attend()(*given, **options)
        assert output.dtype == dtype
        output.sum().backward()
        found.append([output, *(tensor.grad for tensor in given)])
    for half, exact in zip(*found, strict=True):
        assert_close(half.double(), exact, rtol=2**-8, atol=1e-6)  # rounded once, at the end
