"""Recurrent networks over padded batches with fused kernels, equal to packed sequences in results and gradients.

PyTorch steps through packed sequences one position at a time, several times slower than its fused kernels over a padded
batch. Here a layer runs over the whole batch, and padding changes nothing: at padding, LSTM and GRU gates are held at
exactly 0 or 1, so that the state is carried through and the backward direction enters each row with a zero state. Elman
networks have no gates: their backward direction runs over the row reversed, so that padding comes last in both
directions (decision 125).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from seqwright.layers.encoder import last_real
from seqwright.layers.mogrifier import MogrifierLSTM

KERNELS: dict[str, Callable[..., Any]] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}
CLOSED = -1e4
"""Pre-activation at which a sigmoid gate is exactly 0 in floating point; its negative gives exactly 1."""
HOLD = {"LSTM": (CLOSED, -CLOSED, 0.0, 0.0), "GRU": (0.0, -CLOSED, 0.0)}
"""What padding adds to the gate pre-activations: i f g o of an LSTM, r z n of a GRU. The state is kept bit for bit."""
PAD_COLUMNS = 8
"""Extra input features that flag padding. One would do: kernels prefer sizes that are multiples of eight."""
ALIGNMENT = 64
"""Hidden sizes are padded to a multiple of it on a GPU: with other sizes cuDNN takes kernels two to three times as slow
(1,500 against 1,536 in fp16, decision 175)."""
GRADIENT_SCALE = 2.0**12
"""Factor of gradients inside an fp16 recurrence, which would underflow without it: those of one target are about 1e-7,
and fp16 ends at 6e-8. Elements of a gradient above 16, which fp16 cannot represent then, are clamped."""
FP16_MAX = 65504.0
"""The greatest number in fp16."""
GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""Blocks of rows in the weights of a cell."""

Layer = tuple[Tensor, tuple[Tensor, ...]]
"""Outputs (B, S, D) and final states (hidden and, for an LSTM, cell), each (directions, B, D / directions)."""

# cuDNN copies weights that are not contiguous, with a warning; here they are new tensors at each call.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


@contextlib.contextmanager
def without_autocast(network: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """x cast to the dtype of the network's weights, with autocast disabled inside the block.

    Autocast runs cuDNN's recurrent networks in fp16 whatever its dtype is, and without scaling small gradients
    underflow there; see `half_precision`.
    """
    with torch.autocast(x.device.type, enabled=False):
        yield x.to(next(network.parameters()).dtype)


def half_precision(network: nn.Module, x: Tensor) -> bool:
    """Whether the recurrence over x is computed in fp16: of LSTM and GRU in mixed-precision training on a GPU.

    fp16 has as many mantissa bits as tf32, in which cuDNN computes otherwise, and gates bound what it must represent.
    """
    modes = [cell.mode for cell in network.modules() if isinstance(cell, nn.RNNBase)]
    gated = bool(modes) and all(mode in HOLD for mode in modes)
    return gated and network.training and x.is_cuda and torch.is_autocast_enabled(x.device.type)


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor on its way into fp16 (above 1) or out of it.

    What fp16 cannot represent is clamped: infinities would become NaN where gradients are clipped.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        limit = FP16_MAX * min(1.0, ctx.factor)
        return (gradient * ctx.factor).clamp(-limit, limit), None


def _to_half(x: Tensor) -> Tensor:
    """x in fp16; its gradient is unscaled in the dtype of x."""
    return _ScaleGradient.apply(x, 1 / GRADIENT_SCALE).half()  # type: ignore[no-untyped-call]


def _from_half(layer: Layer, dtype: torch.dtype) -> Layer:
    """fp16 outputs and states in another dtype; their gradients are scaled before they are rounded to fp16."""

    def scaled(x: Tensor) -> Tensor:
        return _ScaleGradient.apply(x.to(dtype), GRADIENT_SCALE)  # type: ignore[no-untyped-call]

    return scaled(layer[0]), tuple(map(scaled, layer[1]))


def run_padded(network: nn.RNNBase, x: Tensor, mask: Tensor, *, half: bool = False) -> Layer:
    """Outputs (B, S, D) of the network over right-padded rows x (B, S, D), zeros at padding, and the final states of
    its layers and directions, each (L · directions, B, D / directions): the same as of a packed sequence. `half`:
    computed in fp16, with gradients scaled."""
    if half:
        return _from_half(run_padded(network, _to_half(x), mask), x.dtype)
    run_layer = _run_gated if network.mode in HOLD else _run_reversed
    finals = []
    for layer in range(network.num_layers):
        if layer:
            x = F.dropout(x, network.dropout, network.training)
        vectors, final = run_layer(network, layer, x, mask)
        finals.append(final)
        x = vectors * mask.unsqueeze(-1)
    return x, tuple(torch.cat(states) for states in zip(*finals, strict=True))


class StackedRNN(nn.Module):
    """Single-layer networks of different widths, one on the other, with the arguments and results of torch.nn's stacked
    ones; states of layers narrower than the widest are padded with zeros to (L, B, D)."""

    def __init__(self, blocks: Sequence[nn.RNNBase | MogrifierLSTM], *, dropout: float = 0.0):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.dropout = dropout

    def forward(self, x: Any, initial: Any) -> tuple[Any, Any]:
        """Outputs and final states of x, padded (B, T, D) or packed, from states (L, B, D)."""
        states = initial if isinstance(initial, tuple) else (initial,)
        finals = []
        for layer, block in enumerate(self.blocks):
            if layer and self.dropout and self.training:
                x = _map_packed(x, lambda data: F.dropout(data, self.dropout))
            before = _states_of(states, layer, cast(int, block.hidden_size))
            x, after = block(x, before if len(states) > 1 else before[0])
            finals.append(after if isinstance(after, tuple) else (after,))
        stacked = _stack_states(finals, states[0].size(-1))
        return x, stacked if len(states) > 1 else stacked[0]


def run_layers(
    network: nn.RNNBase | StackedRNN,
    x: Tensor,
    initial: tuple[Tensor, ...],
    *,
    locked: bool = False,
    weight_dropout: float = 0.0,
    half: bool = False,
) -> Layer:
    """The network over rows x (B, S, D) without padding, from states (L, B, D), one layer after the other.

    The same function as its own forward pass, whose dropout between layers on a GPU waits for the host and depends on a
    state inside cuDNN instead of the seed. In training, `weight_dropout` drops hidden-to-hidden weights, one mask for
    all rows and positions (DropConnect, Wan et al. 2013; Merity et al. 2018): the fused kernel takes them as they are.
    `half`: computed in fp16, with gradients scaled.
    """
    if half:
        states = tuple(_to_half(state) for state in initial)
        outputs = run_layers(network, _to_half(x), states, locked=locked, weight_dropout=weight_dropout)
        return _from_half(outputs, x.dtype)
    finals = []
    for layer, (cell, suffix) in enumerate(_cells(network)):
        if layer:
            x = dropout(x, network.dropout, training=network.training, locked=locked)
        weight_ih, weight_hh, *biases = _weights(cell, suffix)
        if weight_dropout:
            weight_hh = F.dropout(weight_hh, weight_dropout, network.training)
        weights, states = [weight_ih, weight_hh, *biases], _states_of(initial, layer, cell.hidden_size)
        if isinstance(cell, MogrifierLSTM):
            x, final = cell.run(x, weights, states)
        else:
            x, final = _run(cell, x, weights, states)
        finals.append(final)
    return x, _stack_states(finals, initial[0].size(-1))


def dropout(x: Tensor, rate: float, *, training: bool, locked: bool) -> Tensor:
    """Dropout of x (B, T, D); `locked`: with one mask for all positions of a row (Gal & Ghahramani 2016)."""
    if not locked or not rate or not training:
        return F.dropout(x, rate, training)
    return x * F.dropout(x.new_ones(x.size(0), 1, x.size(2)), rate)


def _cells(network: nn.RNNBase | StackedRNN) -> list[tuple[nn.RNNBase | MogrifierLSTM, str]]:
    """The network and suffix of parameter names of each layer."""
    if isinstance(network, StackedRNN):
        return [(cast("nn.RNNBase | MogrifierLSTM", block), "l0") for block in network.blocks]
    return [(network, f"l{layer}") for layer in range(network.num_layers)]


def _states_of(states: tuple[Tensor, ...], layer: int, width: int) -> tuple[Tensor, ...]:
    """The states (1, B, width) of a layer."""
    return tuple(state[layer : layer + 1, :, :width].contiguous() for state in states)


def _stack_states(finals: Sequence[tuple[Tensor, ...]], width: int) -> tuple[Tensor, ...]:
    """States (L, B, width) of those of each layer, narrower ones padded with zeros."""
    return tuple(
        torch.cat([F.pad(state, (0, width - state.size(-1))) if state.size(-1) < width else state for state in states])
        for states in zip(*finals, strict=True)
    )


def _map_packed(x: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A function of the elements of a padded or packed sequence."""
    return x._replace(data=function(x.data)) if isinstance(x, PackedSequence) else function(x)


def _run_gated(network: nn.RNNBase, layer: int, x: Tensor, mask: Tensor) -> Layer:
    """All directions of an LSTM or GRU layer at once; extra input features hold the gates at padding."""
    weights = []
    for suffix in _suffixes(network, layer):
        weight_ih, *others = _weights(network, suffix)
        hold = torch.cat(
            [weight_ih.new_full((network.hidden_size, PAD_COLUMNS), value) for value in HOLD[network.mode]]
        )
        weights += [torch.cat([weight_ih, hold], 1), *others]
    is_pad = (~mask).to(x.dtype).unsqueeze(-1).expand(-1, -1, PAD_COLUMNS)
    vectors, final = _run(network, torch.cat([x, is_pad], -1), weights)
    # At padding the cell of an LSTM is held, but its output gate is not: take hidden states at the last real token.
    forward = last_real(vectors, mask.sum(1))[:, : network.hidden_size]
    return vectors, (torch.cat([forward.unsqueeze(0), final[0][1:]]), *final[1:])


def _run_reversed(network: nn.RNNBase, layer: int, x: Tensor, mask: Tensor) -> Layer:
    """The directions of an Elman layer one after the other; the backward one runs over each row's tokens reversed."""
    count, positions = mask.sum(1), torch.arange(mask.size(1), device=mask.device)
    reverse = torch.where(mask, count.unsqueeze(1) - 1 - positions, positions).unsqueeze(-1)  # (B, S, 1)
    vectors: list[Tensor] = []
    finals = []
    for suffix in _suffixes(network, layer):
        inputs = x.gather(1, reverse.expand_as(x)) if vectors else x
        outputs, _ = _run(network, inputs, _weights(network, suffix))
        finals.append(last_real(outputs, count))
        vectors.append(outputs.gather(1, reverse.expand_as(outputs)) if vectors else outputs)
    return torch.cat(vectors, -1), (torch.stack(finals),)


def _run(network: nn.RNNBase, x: Tensor, weights: list[Tensor], states: tuple[Tensor, ...] | None = None) -> Layer:
    """One layer through PyTorch's fused kernel with these weights, four per direction; from zero states by default."""
    width, directions = network.hidden_size, len(weights) // 4
    if states is None:
        states = (x.new_zeros(directions, len(x), width),) * (2 if network.mode == "LSTM" else 1)
    if x.dtype is torch.half:
        weights = [weight if weight.dtype is torch.half else _to_half(weight) for weight in weights]
    aligned = -(-width // ALIGNMENT) * ALIGNMENT if x.is_cuda else width
    if aligned != width:
        weights = _pad_hidden(weights, GATES[network.mode], aligned - width)
        states = tuple(F.pad(state, (0, aligned - width)) for state in states)
    initial = states if network.mode == "LSTM" else states[0]
    # has_biases, num_layers, dropout, train, bidirectional, batch_first
    options = (True, 1, 0.0, network.training, directions == 2, True)
    vectors, *final = KERNELS[network.mode](x, initial, weights, *options)
    if aligned != width:
        vectors = vectors.view(*vectors.shape[:2], directions, aligned)[..., :width].flatten(-2)
        final = [state[..., :width] for state in final]
    return vectors, tuple(final)


def _pad_hidden(weights: list[Tensor], gates: int, extra: int) -> list[Tensor]:
    """The weights of a layer with `extra` more hidden units, whose weights are zero: their states remain zero in every
    cell, and others do not see them."""
    padded = []
    for n, weight in enumerate(weights):
        by_gate = weight.view(gates, -1, *weight.shape[1:])  # (gates, D, I), (gates, D, D) or (gates, D)
        columns = (0, extra if n % 4 == 1 else 0) if weight.dim() == 2 else ()  # hidden-to-hidden is the second of four
        padded.append(F.pad(by_gate, (*columns, 0, extra)).flatten(0, 1))
    return padded


def _suffixes(network: nn.RNNBase, layer: int) -> list[str]:
    """Suffixes of torch.nn's parameter names for each direction of a layer."""
    return [f"l{layer}", f"l{layer}_reverse"][: 1 + network.bidirectional]


def _weights(network: nn.RNNBase | MogrifierLSTM, suffix: str) -> list[Tensor]:
    return [getattr(network, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
