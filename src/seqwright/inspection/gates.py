"""Gate activations of LSTM and GRU layers over time, from the cells written out in `layers/gates.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwright.inspection.forward import RecurrentCalls
from seqwright.inspection.labeled import LabeledTensor, check_index
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.layers.gates import gru_gates, lstm_gates
from seqwright.layers.mogrifier import MogrifierLSTM
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix
from seqwright.tasks.example import ENCODER

SHOWN = {"LSTM": ("input", "forget", "output"), "GRU": ("reset", "update")}
"""Gates, between 0 and 1; the other values of a cell are for Python."""


@dataclass(frozen=True, eq=False)
class LayerGates:
    """One direction of one layer over a text."""

    name: str
    layer: int
    values: Mapping[str, LabeledTensor]
    """(T, D) of each gate, candidate, cell and hidden state."""

    def __getitem__(self, gate: str) -> LabeledTensor:
        return self.values[gate]


@torch.inference_mode()
def unrolled(calls: RecurrentCalls) -> list[list[dict[str, Tensor]]]:
    """For each layer its directions, for each of these the values of the cell by name, (T, D): hidden states of the
    last layer equal the outputs of the fused kernel."""
    network, inputs = calls.network, calls.inputs[0]  # (T, size)
    directions = 2 if network.bidirectional else 1
    layers = []
    for layer in range(network.num_layers):
        layers.append([_direction(calls, inputs, layer, bool(n)) for n in range(directions)])
        inputs = torch.cat([values["hidden"] for values in layers[-1]], -1)
    return layers


def _direction(calls: RecurrentCalls, inputs: Tensor, layer: int, reverse: bool) -> dict[str, Tensor]:
    network = calls.network
    index = layer * (2 if network.bidirectional else 1) + reverse
    states = [state[index] for state in calls.states]  # (1, D)
    states = states or [inputs.new_zeros(1, network.hidden_size)] * (1 if isinstance(network, nn.GRU) else 2)
    steps = []
    for x in inputs.flip(0) if reverse else inputs:
        if isinstance(network, nn.LSTM | MogrifierLSTM):
            step = lstm_gates(network, x.unsqueeze(0), states[0], states[1], layer=layer, reverse=reverse)._asdict()
            states = [step["hidden"], step["cell"]]
        else:
            assert isinstance(network, nn.GRU)
            step = gru_gates(network, x.unsqueeze(0), states[0], layer=layer, reverse=reverse)._asdict()
            states = [step["hidden"]]
        steps.append(step)
    values = {name: torch.cat([step[name] for step in steps]) for name in steps[0]}  # (T, D)
    return {name: value.flip(0) for name, value in values.items()} if reverse else values


def gates_view(subject: Subject) -> ViewResult:
    """Of LSTMs and GRUs: the mean of each gate over the units of a layer, at every token."""
    example, only = subject.example, subject.options.layer
    layers: list[LayerGates] = []
    figures: list[Figure] = []
    for part, networks in _parts(subject).items():
        unrolled_layers = [(calls, layer) for calls in networks for layer in unrolled(calls)]
        if only is not None:
            check_index("layer", only, len(unrolled_layers))
        for number, (calls, directions) in enumerate(unrolled_layers):
            if only is not None and number != only:
                continue
            tokens = example.tokens_of(calls.name, calls.inputs.size(1))
            shown = SHOWN[calls.network.mode]
            for direction, values in zip(("forward", "backward"), directions, strict=False):
                name = f"{part}layer {number}" + ("" if len(directions) == 1 else f", {direction}")
                labeled = {
                    gate: LabeledTensor(f"{name}, {gate}", value.cpu(), tokens) for gate, value in values.items()
                }
                layers.append(LayerGates(name, number, labeled))
                means = torch.stack([values[gate].mean(-1) for gate in shown], 1)  # (T, gates)
                if subject.options.has_rows(len(tokens)):
                    span = subject.options.shown(len(tokens))
                    figures.append(matrix(name, means[span], rows=tokens[span], columns=shown, heat=True))
    if not figures:
        subject.options.shown(max(len(example.source), len(example.tokens)))  # refuses the span
    step = Step(
        "Gate activations over time",
        "Means over the units of a layer, between 0 (closed) and 1 (open). A forget gate (LSTM) or update gate (GRU)"
        " near 1 keeps the state.",
        "LSTM: c(t) = f · c(t-1) + i · g,  h(t) = o · tanh c(t)      GRU: h(t) = z · h(t-1) + (1 - z) · n",
        figures,
    )
    return ViewResult(step, layers)


def _parts(subject: Subject) -> dict[str, list[RecurrentCalls]]:
    """The networks of encoder and decoder, or of a model without a source; layers of different widths are one each."""
    parts: dict[str, list[RecurrentCalls]] = {}
    for calls in subject.forward.recurrent:
        part = f"{'encoder' if calls.name.startswith(ENCODER) else 'decoder'}, " if subject.example.source else ""
        parts.setdefault(part, []).append(calls)
    return parts
