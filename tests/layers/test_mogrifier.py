"""Mogrifier LSTM: without rounds it equals torch.nn.LSTM; its rounds are the equations of Melis et al. (2020)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from seqwright.layers.mogrifier import MogrifierLSTM

STATES = tuple(torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2))


def test_without_rounds_it_equals_torch_lstm() -> None:
    torch.manual_seed(0)
    theirs, ours = nn.LSTM(3, 4, batch_first=True).double(), MogrifierLSTM(3, 4, rounds=0).double()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 5, 3, dtype=torch.float64)
    assert_close(ours(x, STATES), theirs(x, STATES))


def test_rounds_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    network = MogrifierLSTM(3, 4, rounds=3).double()
    x, hidden = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    first, second, third = (matrix.weight for matrix in network.rounds)
    x1 = 2 * torch.sigmoid(hidden @ first.T) * x
    h2 = 2 * torch.sigmoid(x1 @ second.T) * hidden
    x3 = 2 * torch.sigmoid(h2 @ third.T) * x1
    got, (gated, cell) = network.mogrify(x, hidden, hidden)
    assert_close((got, gated, cell), (x3, h2, hidden))


def test_packed_rows_end_at_their_last_position() -> None:
    torch.manual_seed(0)
    network = MogrifierLSTM(3, 4, rounds=2, rank=2).double()
    x, lengths = torch.randn(3, 5, 3, dtype=torch.float64), [2, 5, 1]
    packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    outputs, final = network(packed, STATES)
    outputs = pad_packed_sequence(outputs, batch_first=True)[0]
    for row, length in enumerate(lengths):
        alone, last = network(x[row : row + 1, :length], tuple(state[:, row : row + 1] for state in STATES))
        assert_close(outputs[row, :length], alone[0])
        assert_close([state[:, row] for state in final], [state[:, 0] for state in last])
