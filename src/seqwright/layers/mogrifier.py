"""Mogrifier LSTM (Melis et al. 2020): input and hidden state gate each other before every step of the LSTM."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

States = tuple[Tensor, ...]
"""Hidden and cell state of one layer, each (1, B, D)."""


class MogrifierLSTM(nn.Module):
    """One layer, with the parameter names, arguments and results of torch.nn.LSTM, beside the matrices of its rounds.

    In odd rounds x = 2 σ(Q h) · x, in even ones h = 2 σ(R x) · h. No fused kernel computes this: positions are
    stepped through, which on a GPU pays only as a CUDA graph.
    """

    mode, num_layers, bidirectional = "LSTM", 1, False

    def __init__(self, size: int, width: int, *, rounds: int, rank: int | None = None):
        super().__init__()
        self.hidden_size = width
        bound = 1 / math.sqrt(width)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (4 * width, size), "weight_hh": (4 * width, width)}
        shapes |= {"bias_ih": (4 * width,), "bias_hh": (4 * width,)}
        for name, shape in shapes.items():
            self.register_parameter(f"{name}_l0", nn.Parameter(torch.empty(shape).uniform_(-bound, bound)))
        sizes = [(width, size) if n % 2 == 0 else (size, width) for n in range(rounds)]
        self.rounds = nn.ModuleList(_matrix(inputs, outputs, rank) for inputs, outputs in sizes)

    def forward(self, x: Tensor | PackedSequence, states: States) -> tuple[Tensor | PackedSequence, States]:
        """Outputs (B, T, D) and final states from x (B, T, size) and initial states."""
        weights = [getattr(self, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        if isinstance(x, PackedSequence):
            padded, lengths = pad_packed_sequence(x, batch_first=True)
            outputs, final = self.run(padded, weights, states, lengths.to(padded.device))
            return pack_padded_sequence(outputs, lengths, batch_first=True, enforce_sorted=False), final
        return self.run(x, weights, states)

    def run(
        self, x: Tensor, weights: Sequence[Tensor], states: States, lengths: Tensor | None = None
    ) -> tuple[Tensor, States]:
        """As `forward`, with these weights of the LSTM; `lengths` (B,): states stay as they are at padding."""
        hidden, cell = states[0][0], states[1][0]
        outputs = []
        for t, step in enumerate(x.unbind(1)):
            new_hidden, new_cell = torch.lstm_cell(*self.mogrify(step, hidden, cell), *weights)
            if lengths is not None:
                real = (t < lengths).unsqueeze(1)
                new_hidden, new_cell = torch.where(real, new_hidden, hidden), torch.where(real, new_cell, cell)
            hidden, cell = new_hidden, new_cell
            outputs.append(hidden)
        return torch.stack(outputs, 1), (hidden.unsqueeze(0), cell.unsqueeze(0))

    def mogrify(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The arguments of an LSTM cell at one position: x (B, size) and the states (B, D) after all rounds."""
        for n, matrix in enumerate(self.rounds):
            if n % 2 == 0:
                x = 2 * torch.sigmoid(matrix(hidden)) * x
            else:
                hidden = 2 * torch.sigmoid(matrix(x)) * hidden
        return x, (hidden, cell)


def _matrix(inputs: int, outputs: int, rank: int | None) -> nn.Module:
    """A linear map without bias, of full or low rank."""
    if rank is None:
        return nn.Linear(inputs, outputs, bias=False)
    return nn.Sequential(nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False))
