"""Recurrent networks over padded rows, as if each were read alone: what devices have fused kernels for.

Packed rows are stepped through one position at a time, several times slower than a whole batch. Here a layer reads the
whole batch, and pads change nothing: gates hold the state while one is read, so that a direction that begins in the
padding still has none at a row's end. What has no gates is turned around row by row instead, since pads that come last
come too late to matter.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers.encoder import last_real

KERNELS: dict[str, Callable[..., Any]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
SHUT = -1e4
"""What a gate is given to be exactly 0; its opposite opens one to exactly 1."""
HOLD = {"LSTM": (SHUT, -SHUT, 0.0, 0.0), "GRU": (0.0, -SHUT, 0.0)}
"""What a pad gives to the gates: i f g o of an LSTM, r z n of a GRU. The state stays what it was, to the bit."""
COLUMNS = 8
"""Inputs that say it, which one could: kernels like sizes that are multiples of eight."""

Layer = tuple[Tensor, tuple[Tensor, ...]]
"""Vectors (B, S, D) and the states (hidden, and perhaps cell) in which a layer's directions ended, each
(directions, B, D / directions)."""

# cuDNN copies weights that do not lie side by side in memory, and says so; there are new ones at each call.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


@contextlib.contextmanager
def own_precision(network: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Inside, x in the precision of the network's weights, and no other: autocast would take fp16 for cuDNN's recurrent
    networks whatever it is asked for, and gradients vanish there that nothing scales."""
    with torch.autocast(x.device.type, enabled=False):
        yield x.to(next(network.parameters()).dtype)


def read_padded(network: nn.RNNBase, x: Tensor, mask: Tensor) -> Layer:
    """What the network makes of the rows of x (B, S, D) packed: vectors (B, S, D), zeros behind a row, and the states
    in which its layers and directions ended, each (L · directions, B, D / directions)."""
    read = _holding if network.mode in HOLD else _turning
    ends = []
    for layer in range(network.num_layers):
        if layer:
            x = F.dropout(x, network.dropout, network.training)
        vectors, end = read(network, layer, x, mask)
        ends.append(end)
        x = vectors * mask.unsqueeze(-1)
    return x, tuple(torch.cat(several) for several in zip(*ends, strict=True))


def _holding(network: nn.RNNBase, layer: int, x: Tensor, mask: Tensor) -> Layer:
    """A layer in all directions at once, its gates told of pads by inputs of their own."""
    weights = []
    for where in _directions(network, layer):
        own = _weights(network, where)
        gates = torch.cat([own[0].new_full((network.hidden_size, COLUMNS), value) for value in HOLD[network.mode]])
        weights += [torch.cat([own[0], gates], 1), *own[1:]]
    pads = (~mask).to(x.dtype).unsqueeze(-1).expand(-1, -1, COLUMNS)
    vectors, end = _run(network, torch.cat([x, pads], -1), weights)
    # Behind a row an LSTM's output gate goes on, over a cell that stands still.
    forward = last_real(vectors, mask.sum(1))[:, : network.hidden_size]
    return vectors, (torch.cat([forward.unsqueeze(0), end[0][1:]]), *end[1:])


def _turning(network: nn.RNNBase, layer: int, x: Tensor, mask: Tensor) -> Layer:
    """A layer in one direction after the other; the second is given each row's own tokens backwards."""
    count, places = mask.sum(1), torch.arange(mask.size(1), device=mask.device)
    turned = torch.where(mask, count.unsqueeze(1) - 1 - places, places).unsqueeze(-1)  # (B, S, 1)
    vectors: list[Tensor] = []
    ends = []
    for where in _directions(network, layer):
        given = x.gather(1, turned.expand_as(x)) if vectors else x
        found, _ = _run(network, given, _weights(network, where))
        ends.append(last_real(found, count))
        vectors.append(found.gather(1, turned.expand_as(found)) if vectors else found)
    return torch.cat(vectors, -1), (torch.stack(ends),)


def _run(network: nn.RNNBase, x: Tensor, weights: list[Tensor]) -> Layer:
    """One layer with these weights, four for each direction."""
    begin = x.new_zeros(len(weights) // 4, len(x), network.hidden_size)
    given = (begin, begin) if network.mode == "LSTM" else begin
    # biases, layers, dropout, training, directions, rows first
    options = (True, 1, 0.0, network.training, len(weights) > 4, True)
    vectors, *end = KERNELS[network.mode](x, given, weights, *options)
    return vectors, tuple(end)


def _directions(network: nn.RNNBase, layer: int) -> list[str]:
    """How the names of their weights end."""
    return [f"l{layer}", f"l{layer}_reverse"][: 1 + network.bidirectional]


def _weights(network: nn.RNNBase, where: str) -> list[Tensor]:
    return [getattr(network, f"{name}_{where}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
