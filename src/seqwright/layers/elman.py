"""Elman RNN with the activations that torch.nn.RNN lacks: the lectures' sigmoid and linear."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "linear": lambda x: x}


class Elman(nn.Module):
    """h_t = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), with torch.nn.RNN's parameter names, arguments and results."""

    def __init__(
        self, size: int, width: int, layers: int, *, activation: Callable[[Tensor], Tensor], dropout: float = 0.0
    ):
        super().__init__()
        self.layers = layers
        self.activation = activation
        self.dropout = nn.Dropout(dropout)
        bound = 1 / math.sqrt(width)
        for layer in range(layers):
            shapes = {"weight_ih": (width, size if layer == 0 else width), "weight_hh": (width, width)}
            shapes |= {"bias_ih": (width,), "bias_hh": (width,)}  # type: ignore[dict-item]
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))

    def forward(self, x: Tensor | PackedSequence, hidden: Tensor) -> tuple[Tensor | PackedSequence, Tensor]:
        """Outputs (B, T, D) and final hidden states (L, B, D) from x (B, T, size) and initial states (L, B, D)."""
        if isinstance(x, PackedSequence):
            padded, lengths = pad_packed_sequence(x, batch_first=True)
            output, last = self._run(padded, hidden, lengths.to(padded.device))
            return pack_padded_sequence(output, lengths, batch_first=True, enforce_sorted=False), last
        return self._run(x, hidden, None)

    def _run(self, x: Tensor, hidden: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        last = []
        for layer in range(self.layers):
            weight = getattr(self, f"weight_hh_l{layer}")
            projected = nn.functional.linear(
                x if layer == 0 else self.dropout(x),
                getattr(self, f"weight_ih_l{layer}"),
                getattr(self, f"bias_ih_l{layer}") + getattr(self, f"bias_hh_l{layer}"),
            )
            state, outputs = hidden[layer], []
            for t in range(x.size(1)):
                updated = self.activation(projected[:, t] + state @ weight.T)
                state = updated if lengths is None else torch.where((t < lengths).unsqueeze(1), updated, state)
                outputs.append(state)
            x = torch.stack(outputs, 1)
            last.append(state)
        return x, torch.stack(last)
