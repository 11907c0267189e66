"""Recurrent networks over padded rows, as if each were read alone: what a CPU has fused kernels for.

Packed rows are stepped through one position at a time, several times slower than a whole batch, above all in training.
Here every direction reads the whole batch: pads come behind each row's own tokens, too late to matter, and the state in
which a row ended is taken from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNELS: dict[str, Callable[..., Any]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
SHUT = -1e4
"""What a gate is given to be exactly 0; its opposite opens one to exactly 1."""


def read_padded(network: nn.RNNBase, x: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What the network makes of the rows of x (B, S, D) packed: vectors (B, S, D), zeros behind a row, and the states
    (hidden, and perhaps cell) in which its layers and directions ended, each (L · directions, B, D / directions)."""
    lengths, places = mask.sum(1, keepdim=True), torch.arange(mask.size(1), device=mask.device)
    turned = torch.where(mask, lengths - 1 - places, places)  # (B, S): each row's own tokens backwards
    ends: list[tuple[Tensor, ...]] = []
    for layer in range(network.num_layers):
        if layer:
            x = F.dropout(x, network.dropout, network.training)
        vectors, last = _read(network, f"l{layer}", x, mask)
        ends.append(last)
        if network.bidirectional:
            backwards, last = _read(network, f"l{layer}_reverse", _moved(x, turned), mask)
            ends.append(last)
            vectors = torch.cat([vectors, _moved(backwards, turned)], -1)
        x = vectors * mask.unsqueeze(-1)
    return x, tuple(torch.stack(several) for several in zip(*ends, strict=True))


def _read(network: nn.RNNBase, where: str, x: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction: vectors (B, S, D) and, where each row ends, hidden and perhaps cell (B, D)."""
    weights = [getattr(network, f"{name}_{where}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    begin = x.new_zeros(1, len(x), network.hidden_size)
    kernel = KERNELS[network.mode]
    options = (True, 1, 0.0, network.training, False, True)  # biases, layers, dropout, training, directions, rows first
    cells: tuple[Tensor, ...] = ()
    if network.mode == "LSTM":
        # No kernel tells a cell but the last. A pad, as one more input, shuts the input gate and opens the forget gate:
        # cells stay what they were when the row ended, to the bit.
        gates = weights[0].new_tensor([SHUT, -SHUT, 0.0, 0.0]).repeat_interleave(network.hidden_size)  # i f g o
        weights[0] = torch.cat([weights[0], gates.unsqueeze(1)], 1)
        x = torch.cat([x, (~mask).to(x.dtype).unsqueeze(-1)], -1)
        vectors, _, cell = kernel(x, (begin, begin), weights, *options)
        cells = (cell[0],)
    else:
        vectors, _ = kernel(x, begin, weights, *options)
    hidden = vectors[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
    return vectors, (hidden, *cells)


def _moved(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places.unsqueeze(-1).expand_as(x))
