"""Int8 weights: rounded to nearest, the same for few rows and many, within a stated bound of the original."""

from __future__ import annotations

import torch
from torch import nn
from torch.testing import assert_close

from seqwright.layers.inference.int8_linear import FEW_ROWS, Int8Linear, quantize_weights_
from tests.contract.kinds import small


@torch.inference_mode()
def test_int8_weights_are_within_half_a_scale() -> None:
    torch.manual_seed(1)
    plain = nn.Linear(48, 20)
    quantized = Int8Linear(plain)
    half = plain.weight.abs().amax(1, keepdim=True) / 127 / 2
    assert bool(
        ((quantized.weight - plain.weight).abs() <= 1.02 * half).all()
    )  # the scale itself is rounded to bfloat16


@torch.inference_mode()
def test_few_rows_and_many_have_the_same_product() -> None:
    """Law: within the rounding of activations to bfloat16, 2⁻⁸ of each product."""
    torch.manual_seed(1)
    for bias in (True, False):
        layer = Int8Linear(nn.Linear(64, 32, bias=bias))
        x = torch.randn(FEW_ROWS + 1, 64)
        bound = float((x.abs() @ layer.weight.abs().T).max()) * 2**-7
        assert_close(layer(x[:3]), layer(x)[:3], rtol=0, atol=bound)
        assert layer(x[:3].view(3, 1, 64)).shape == (3, 1, 32)


@torch.inference_mode()
def test_outputs_of_zero_weights_are_zero() -> None:
    layer = Int8Linear(nn.Linear(16, 4, bias=False).requires_grad_(False))
    zeros = nn.Linear(16, 4, bias=False)
    nn.init.zeros_(zeros.weight)
    assert layer(torch.ones(1, 16)).abs().max() > 0
    assert_close(Int8Linear(zeros)(torch.ones(1, 16)), torch.zeros(1, 4))


def test_every_linear_layer_is_quantized_and_embeddings_are_not() -> None:
    model = quantize_weights_(small("gpt").float())
    kinds = {type(part) for part in model.modules() if isinstance(part, nn.Linear)}
    assert kinds == {Int8Linear}
    assert any(type(part) is nn.Embedding for part in model.modules())
