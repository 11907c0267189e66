"""Recurrent networks over padded rows equal packed sequences in outputs, final states and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from seqwright.layers import recurrent
from seqwright.layers.recurrent import GATES, KERNELS, run_layers, run_padded
from seqwright.models.encoders.recurrent import (
    BidirectionalConfig,
    BidirectionalEncoder,
    LSTMConfig,
    RecurrentEncoder,
)

NETWORKS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
LENGTHS = torch.tensor([5, 9, 1, 9, 3])


def packed(network: nn.RNNBase, x: Tensor) -> tuple[Tensor, ...]:
    sequence = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    vectors, last = network(sequence)
    return pad_packed_sequence(vectors, batch_first=True)[0], *(last if isinstance(last, tuple) else (last,))


def padded(network: nn.RNNBase, x: Tensor) -> tuple[Tensor, ...]:
    vectors, last = run_padded(network, x, torch.arange(x.size(1)) < LENGTHS.unsqueeze(1))
    return vectors, *last


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # with and without fused kernels
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", NETWORKS)
def test_padded_rnn_equals_packed_sequence(kind, bidirectional, dtype):
    torch.manual_seed(1)
    network = NETWORKS[kind](6, 4, 2, batch_first=True, bidirectional=bidirectional).to(dtype)
    x = torch.randn(5, 9, 6, dtype=dtype, requires_grad=True)
    runs = []
    for run in (packed, padded):
        results = run(network, x)
        loss = sum((result.sin() * n).sum() for n, result in enumerate(results, 1))
        runs.append([*results, *torch.autograd.grad(loss, [x, *network.parameters()])])
    assert len(runs[0]) == len(runs[1])
    for expected, actual in zip(*runs, strict=True):
        assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", NETWORKS)
def test_layers_one_after_the_other_equal_the_network(kind):
    torch.manual_seed(1)
    network = NETWORKS[kind](6, 4, 3, batch_first=True).double()
    x = torch.randn(5, 9, 6, dtype=torch.double, requires_grad=True)
    states = tuple(torch.randn(3, 5, 4, dtype=torch.double) for _ in range(2 if kind == "lstm" else 1))
    vectors, last = network(x, states if kind == "lstm" else states[0])
    layered, finals = run_layers(network, x, states)
    results = [(vectors, *(last if kind == "lstm" else (last,))), (layered, *finals)]
    runs = []
    for values in results:
        loss = sum((value.sin() * n).sum() for n, value in enumerate(values, 1))
        runs.append([*values, *torch.autograd.grad(loss, [x, *network.parameters()])])
    for expected, actual in zip(*runs, strict=True):
        assert_close(actual, expected, rtol=0, atol=1e-12)


def test_padding_values_do_not_change_padded_rnn():
    torch.manual_seed(1)
    network = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)
    x = torch.randn(5, 9, 6)
    other = torch.where(torch.arange(9).unsqueeze(1) < LENGTHS.view(-1, 1, 1), x, 100.0)
    for one, two in zip(padded(network, x), padded(network, other), strict=True):
        assert torch.equal(one, two)


def test_padded_rnn_dropout_is_active_in_training_only():
    torch.manual_seed(1)
    network = nn.GRU(6, 4, 2, batch_first=True, dropout=0.5)
    x = torch.randn(5, 9, 6)
    assert not torch.equal(padded(network, x)[0], padded(network, x)[0])
    network.eval()
    assert_close(padded(network, x), packed(network, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_is_disabled_for_recurrent_networks(dtype):
    """On a GPU it would take fp16, without loss scaling."""
    torch.manual_seed(1)
    x, mask = torch.randn(5, 9, 6).to(dtype), torch.arange(9) < LENGTHS.unsqueeze(1)
    bidirectional, causal = (
        BidirectionalEncoder("lstm", BidirectionalConfig(width=6)).eval(),
        RecurrentEncoder(LSTMConfig(width=6)).eval(),
    )
    for encode in (lambda x: bidirectional(x, mask).vectors, lambda x: causal(x)[0]):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = encode(x)
        assert torch.equal(vectors, encode(x.float()))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_fp16_recurrence_keeps_gradients_that_underflow_in_fp16(kind):
    """Gradients of 1e-7, as of one target among many, have no digits left in fp16."""
    torch.manual_seed(1)
    network = NETWORKS[kind](6, 4, 2, batch_first=True)
    x = torch.randn(5, 9, 6, requires_grad=True)
    states = tuple(torch.randn(2, 5, 4) for _ in range(2 if kind == "lstm" else 1))
    mask = torch.arange(9) < LENGTHS.unsqueeze(1)
    for run in (
        lambda half: run_layers(network, x, states, half=half),
        lambda half: run_padded(network, x, mask, half=half),
    ):
        runs = []
        for half in (False, True):
            vectors, finals = run(half)
            loss = 1e-7 * sum(value.sin().sum() for value in (vectors, *finals))
            runs.append([vectors, *finals, *torch.autograd.grad(loss, [x, *network.parameters()])])
        for expected, actual in zip(*runs, strict=True):
            assert actual.dtype is torch.float32
            assert_close(actual, expected, rtol=0, atol=4e-3 * expected.abs().max().item())


@pytest.mark.parametrize("kind", NETWORKS)
def test_hidden_units_of_zero_weights_change_nothing(kind):
    torch.manual_seed(1)
    network = NETWORKS[kind](6, 4, 1, batch_first=True, bidirectional=True).double()
    x = torch.randn(5, 9, 6, dtype=torch.double)
    vectors, last = network(x)
    weights = recurrent._pad_hidden(list(network.parameters()), GATES[network.mode], 3)
    zeros = x.new_zeros(2, 5, 7)
    initial = (zeros, zeros) if kind == "lstm" else zeros
    padded, *finals = KERNELS[network.mode](x, initial, weights, True, 1, 0.0, True, True, True)
    padded = padded.unflatten(-1, (2, 7))
    assert_close(padded[..., :4].flatten(-2), vectors, rtol=0, atol=1e-12)
    assert not padded[..., 4:].any()
    for final, expected in zip(finals, last if kind == "lstm" else (last,), strict=True):
        assert_close(final[..., :4], expected, rtol=0, atol=1e-12)


def test_gradients_beyond_fp16_are_clamped() -> None:
    """Infinities would become NaN where gradients are clipped; fp16 ends at 65,504 = 16 times the scale."""
    x = torch.ones(3, requires_grad=True)
    recurrent._to_half(x).float().mul(torch.tensor([1e9, -1e9, 1e-7])).sum().backward()
    assert_close(x.grad, torch.tensor([65504 / 4096, -65504 / 4096, 1e-7 / 4096]), rtol=0.2, atol=0)
