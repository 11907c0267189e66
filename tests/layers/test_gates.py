"""Gates written out equal the fused kernels of torch.nn, in every layer and in the gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seqwright.layers.gates import gru_gates, lstm_gates

ROWS, LENGTH, SIZE, WIDTH = 2, 5, 3, 4


def test_lstm_gates_equal_the_fused_kernel() -> None:
    network = nn.LSTM(SIZE, WIDTH, 2, batch_first=True).double()
    x = torch.randn(ROWS, LENGTH, SIZE, dtype=torch.float64, requires_grad=True)
    expected, (hidden, cell) = network(x)
    inputs: Tensor = x
    for layer in range(2):
        h = c = x.new_zeros(ROWS, WIDTH)
        outputs = []
        for t in range(LENGTH):
            gates = lstm_gates(network, inputs[:, t], h, c, layer=layer)
            h, c = gates.hidden, gates.cell
            outputs.append(h)
        inputs = torch.stack(outputs, 1)
        assert_close((h, c), (hidden[layer], cell[layer]))
    assert_close(inputs, expected)
    assert_close(torch.autograd.grad(inputs.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


def test_gru_gates_equal_the_fused_kernel() -> None:
    network = nn.GRU(SIZE, WIDTH, batch_first=True).double()
    x = torch.randn(ROWS, LENGTH, SIZE, dtype=torch.float64)
    expected, _ = network(x)
    h = x.new_zeros(ROWS, WIDTH)
    for t in range(LENGTH):
        h = gru_gates(network, x[:, t], h).hidden
        assert_close(h, expected[:, t])
