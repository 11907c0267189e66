"""Elman RNN: with tanh it equals torch.nn.RNN in parameter names, shapes, outputs, states and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from seqwright.layers.elman import Elman


@pytest.fixture
def networks() -> tuple[Elman, nn.RNN]:
    torch.manual_seed(0)
    theirs = nn.RNN(3, 4, 2, batch_first=True).double()
    ours = Elman(3, 4, 2, activation=torch.tanh).double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def test_elman_equals_torch_rnn(networks: tuple[Elman, nn.RNN]) -> None:
    x, hidden = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 2, 4, dtype=torch.float64)
    results = [network(x, hidden) for network in networks]
    assert_close(results[0], results[1])
    gradients = [
        torch.autograd.grad(output.square().sum() + last.sum(), list(network.parameters()))
        for network, (output, last) in zip(networks, results, strict=True)
    ]
    assert_close(gradients[0], gradients[1])


def test_elman_packed_sequences_end_at_their_last_position(networks: tuple[Elman, nn.RNN]) -> None:
    x, hidden = torch.randn(3, 5, 3, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    packed = pack_padded_sequence(x, torch.tensor([2, 5, 1]), batch_first=True, enforce_sorted=False)
    (ours, our_last), (theirs, their_last) = (network(packed, hidden) for network in networks)
    assert_close(our_last, their_last)
    assert_close(pad_packed_sequence(ours, batch_first=True)[0], pad_packed_sequence(theirs, batch_first=True)[0])


def test_elman_dropout_is_between_layers_only() -> None:
    x, hidden = torch.randn(1, 3, 4), torch.zeros(1, 1, 4)
    one = Elman(4, 4, 1, activation=torch.tanh, dropout=0.9)
    assert_close(one(x, hidden), one.eval()(x, hidden))
    two = Elman(4, 4, 2, activation=torch.tanh, dropout=0.9)
    twice = hidden.expand(2, 1, 4)
    assert not torch.equal(two(x, twice)[0], two.eval()(x, twice)[0])
