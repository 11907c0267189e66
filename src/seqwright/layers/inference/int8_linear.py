"""Linear layers with int8 weights, for faster decoding on a CPU.

A decoding step of few rows is bound by reading the weights, of which int8 has a quarter of the bytes of float32.
Weights are rounded for each output, symmetrically and to nearest; activations are not quantized (weight-only).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW_ROWS = 8
"""Rows that take the int8 kernel: one row is 2 to 5 times as fast as in float32, 16 are no faster (decision 169)."""


class Int8Linear(nn.Linear):
    """Inference-only linear layer whose weights are int8 times a scale for each output.

    `weight` holds the rounded weights in float32: many rows, and whoever reads the weight itself, compute with these,
    so that scores measure what rounding costs. Few rows are multiplied by the int8 weights, in bfloat16, so
    that a row alone equals itself in a larger batch within that rounding only (decision 169).
    """

    def __init__(self, plain: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        weight = plain.weight.detach().float()
        greatest = weight.abs().amax(1).clamp(min=torch.finfo(torch.bfloat16).tiny)
        scale = (greatest / 127).bfloat16()  # as the kernel reads it
        rounded = (weight / scale.float().unsqueeze(1)).round().clamp(-127, 127)
        self.register_buffer("int8", rounded.to(torch.int8), persistent=False)
        self.register_buffer("scale", scale, persistent=False)
        self.weight = nn.Parameter(rounded * scale.float().unsqueeze(1), requires_grad=False)
        self.bias = plain.bias

    def forward(self, input: Tensor) -> Tensor:
        rows = input.numel() // self.in_features
        if rows > FEW_ROWS or input.device.type != "cpu":
            return F.linear(input, self.weight, self.bias)
        flat = input.reshape(rows, self.in_features).bfloat16()
        product = torch._weight_int8pack_mm(flat, self.get_buffer("int8"), self.get_buffer("scale")).float()
        out = product if self.bias is None else product + self.bias
        return out.view(*input.shape[:-1], self.out_features)


def quantize_weights_(model: nn.Module) -> nn.Module:
    """The model with int8 weights in its linear layers, replaced in place; embeddings, normalizations and recurrent
    weights stay as they are."""
    for parent in [*model.modules()]:
        for name, part in [*parent.named_children()]:
            if type(part) is nn.Linear:
                setattr(parent, name, Int8Linear(part))
    return model
