"""LSTM and GRU cells written out: the gates, which PyTorch's fused kernels do not return.

For inspection, not for speed. Hidden and cell states equal those of `torch.nn.LSTM` and `torch.nn.GRU`
(tests/layers/test_gates.py).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.layers.mogrifier import MogrifierLSTM


class LSTMGates(NamedTuple):
    """One time step of an LSTM layer, each (B, D), in PyTorch's gate order i f g o."""

    input: Tensor
    forget: Tensor
    candidate: Tensor
    output: Tensor
    cell: Tensor
    hidden: Tensor


class GRUGates(NamedTuple):
    """One time step of a GRU layer, each (B, D), in PyTorch's gate order r z n."""

    reset: Tensor
    update: Tensor
    candidate: Tensor
    hidden: Tensor


def lstm_gates(
    network: nn.LSTM | MogrifierLSTM,
    x: Tensor,
    hidden: Tensor,
    cell: Tensor,
    *,
    layer: int = 0,
    reverse: bool = False,
) -> LSTMGates:
    """The gates of one step from x (B, size) and the states (B, D) before it (Gers et al. 2000); `reverse`: of the
    backward direction, which steps from the last position to the first."""
    if isinstance(network, MogrifierLSTM):
        x, (hidden, cell) = network.mogrify(x, hidden, cell)
    from_input, from_hidden = _pre_activations(network, x, hidden, layer, reverse)
    i, f, g, o = (from_input + from_hidden).chunk(4, -1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cell = f * cell + i * g
    return LSTMGates(i, f, g, o, cell, o * torch.tanh(cell))


def gru_gates(network: nn.GRU, x: Tensor, hidden: Tensor, *, layer: int = 0, reverse: bool = False) -> GRUGates:
    """The gates of one step from x (B, size) and the state (B, D) before it (Cho et al. 2014).

    The reset gate multiplies W_hn h + b_hn, not h: the variant of cuDNN. `reverse` as for LSTMs.
    """
    from_input, from_hidden = _pre_activations(network, x, hidden, layer, reverse)
    (ri, zi, ni), (rh, zh, nh) = from_input.chunk(3, -1), from_hidden.chunk(3, -1)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    return GRUGates(r, z, n, (1 - z) * n + z * hidden)


def _pre_activations(network: nn.Module, x: Tensor, hidden: Tensor, layer: int, reverse: bool) -> tuple[Tensor, Tensor]:
    """W_i x + b_i and W_h h + b_h of all gates, each (B, gates · D)."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    suffix = f"l{layer}_reverse" if reverse else f"l{layer}"
    weight_ih, weight_hh, bias_ih, bias_hh = (network.get_parameter(f"{name}_{suffix}") for name in names)
    return F.linear(x, weight_ih, bias_ih), F.linear(hidden, weight_hh, bias_hh)
