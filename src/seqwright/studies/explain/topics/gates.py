"""LSTM and GRU of one unit (worked example 7): gates over time, and what the forget bias does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from seqwright import build
from seqwright.core.config import UserError
from seqwright.layers.gates import gru_gates, lstm_gates
from seqwright.layers.mogrifier import MogrifierLSTM
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, Table, matrix, table
from seqwright.studies.explain.options import TopicOptions, Vector
from seqwright.studies.explain.recording import set_parameters
from seqwright.studies.explain.text import notes_of, run_example
from seqwright.studies.explain.topics.of_run import calls_of, modules_of, part_of

CELLS: dict[str, tuple[type[nn.Module], ...]] = {"lstm": (nn.LSTM, MogrifierLSTM), "gru": (nn.GRU,)}


@dataclass(frozen=True, kw_only=True)
class LSTMOptions(TopicOptions):
    x: Vector = (1.0, -1.0, 0.5)
    """Inputs, one for each time step."""
    W: Vector = (1.0, 1.0, 1.0, 1.0)
    """Input weights of the gates i f g o."""
    U: Vector = (1.0, 1.0, 1.0, 1.0)
    """Recurrent weights of the gates i f g o."""
    b: Vector = (0.0, 0.0, 0.0, 0.0)
    """Biases of the gates i f g o."""
    forget_bias: float = 1.0
    """Forget bias of the second run."""
    text: str = ""
    """Text that a run is shown on."""
    unit: int = 0
    """Unit of a run's first layer, from 0."""

    resizable: ClassVar[tuple[str, ...]] = ("x",)
    run_only: ClassVar[tuple[str, ...]] = ("unit",)


@dataclass(frozen=True, kw_only=True)
class GRUOptions(TopicOptions):
    x: Vector = (1.0, -1.0, 0.5)
    """Inputs, one for each time step."""
    W: Vector = (1.0, 1.0, 1.0)
    """Input weights of the gates r z n."""
    U: Vector = (1.0, 1.0, 1.0)
    """Recurrent weights of the gates r z n."""
    b: Vector = (0.0, 0.0, 0.0)
    """Biases of the gates r z n."""
    text: str = ""
    """Text that a run is shown on."""
    unit: int = 0
    """Unit of a run's first layer, from 0."""

    resizable: ClassVar[tuple[str, ...]] = ("x",)
    run_only: ClassVar[tuple[str, ...]] = ("unit",)


def encoder(kind: str, options: LSTMOptions | GRUOptions, bias: Vector) -> Any:
    """The shipped recurrent encoder of width 1 with these weights."""
    entry = build.CAUSAL_ENCODERS[kind]
    recurrent = entry.build(entry.config(width=1)).double().eval()
    columns = {"weight_ih_l0": options.W, "weight_hh_l0": options.U}
    values = {name: torch.tensor(weights, dtype=torch.float64).unsqueeze(1) for name, weights in columns.items()}
    values |= {"bias_ih_l0": torch.tensor(bias, dtype=torch.float64)}
    set_parameters(recurrent.network, values | {"bias_hh_l0": torch.zeros(len(bias), dtype=torch.float64)})
    return recurrent


def lstm(options: LSTMOptions, run: Run | None = None) -> Explanation:
    """An LSTM of one unit, without and with a forget bias; or the first LSTM layer of a run."""
    if run is not None:
        return _of_run("lstm", "LSTM", ("i", "f", "g", "o", "c", "h"), options, run)
    i, f, g, o = options.b
    steps = [
        Step(
            "One unit",
            "Three gates between 0 and 1 decide what is written (i), kept (f) and shown (o); the candidate g is what"
            " would be written.",
            "i = σ(W_i x + U_i h + b_i)   f = σ(W_f x + U_f h + b_f)\n"
            "g = tanh(W_g x + U_g h + b_g)   o = σ(W_o x + U_o h + b_o)\n"
            "c ← f · c + i · g   h ← o · tanh(c)",
            [
                matrix("x", options.x, columns=[f"x{t}" for t in range(1, len(options.x) + 1)]),
                matrix("parameters", [options.W, options.U, options.b], rows=["W", "U", "b"], columns=list("ifgo")),
            ],
            ["the slides order the gates i f o g; PyTorch stores i f g o."],
        ),
        Step(
            "Step by step",
            "The cell c is the memory, h what the rest of the network sees.",
            "",
            [_lstm_table("gates", options, options.b), _lstm_states("states", options, options.b)],
        ),
        Step(
            f"With forget bias {options.forget_bias:g}",
            "The forget gate starts open: the cell remembers more, and gradients reach further back (Jozefowicz et al."
            " 2015). It is the default of our LSTM language models.",
            "f = σ(W_f x + U_f h + b_f + bias)",
            [
                _lstm_table("gates with forget bias", options, (i, f + options.forget_bias, g, o)),
                _lstm_states("states with forget bias", options, (i, f + options.forget_bias, g, o)),
            ],
        ),
        Step(
            "Why it remembers",
            "The cell is changed by adding, and multiplied by f only: where f is near 1 the gradient passes through"
            " many steps, while an Elman network multiplies it by W_hh and tanh' at every one.",
            "∂c_t / ∂c_(t-1) = f_t   (along the cell)",
        ),
    ]
    about = "The long short-term memory adds a cell with gates to a recurrent network (Hochreiter & Schmidhuber 1997)."
    return Explanation("lstm", "LSTM", about, steps)


@torch.no_grad()
def _lstm_table(name: str, options: LSTMOptions, bias: Vector) -> Table:
    network = encoder("lstm", options, bias).network
    h = c = torch.zeros(1, 1, dtype=torch.float64)
    rows = []
    for t, x in enumerate(options.x, 1):
        gates = lstm_gates(network, torch.tensor([[x]], dtype=torch.float64), h, c)
        h, c = gates.hidden, gates.cell
        rows.append((t, x, *(float(value) for value in gates)))
    return table(name, ["t", "x", "i", "f", "g", "o", "c", "h"], rows)


@torch.no_grad()
def _lstm_states(name: str, options: LSTMOptions, bias: Vector) -> Any:
    """Cell and hidden states as the fused kernel returns them."""
    recurrent = encoder("lstm", options, bias)
    state = recurrent.start(1, len(options.x), recurrent.network.weight_ih_l0)
    cells, hiddens = [], []
    for x in options.x:
        output, state = recurrent(torch.tensor([[[x]]], dtype=torch.float64), state)
        cells.append(float(state.cell))
        hiddens.append(float(output))
    return matrix(name, [cells, hiddens], rows=["c", "h"], columns=[f"t={t}" for t in range(1, len(cells) + 1)])


@torch.no_grad()
def gru(options: GRUOptions, run: Run | None = None) -> Explanation:
    """A GRU of one unit, or the first GRU layer of a run."""
    if run is not None:
        return _of_run("gru", "GRU", ("r", "z", "n", "h"), options, run)
    recurrent = encoder("gru", options, options.b)
    h, rows = torch.zeros(1, 1, dtype=torch.float64), []
    for t, x in enumerate(options.x, 1):
        gates = gru_gates(recurrent.network, torch.tensor([[x]], dtype=torch.float64), h)
        h = gates.hidden
        rows.append((t, x, *(float(value) for value in gates)))
    output, _ = recurrent(torch.tensor([[[x] for x in options.x]], dtype=torch.float64))
    steps = [
        Step(
            "One unit",
            "Two gates and no separate cell: r decides how much of the past enters the candidate n, z how much of it is"
            " kept.",
            "r = σ(W_r x + U_r h + b_r)   z = σ(W_z x + U_z h + b_z)\n"
            "n = tanh(W_n x + b_n + r · U_n h)\n"
            "h ← (1 - z) · n + z · h",
            [
                matrix("x", options.x, columns=[f"x{t}" for t in range(1, len(options.x) + 1)]),
                matrix("parameters", [options.W, options.U, options.b], rows=["W", "U", "b"], columns=list("rzn")),
            ],
        ),
        Step(
            "Step by step",
            "Where z is near 1 the state is carried on unchanged.",
            "",
            [
                table("gates", ["t", "x", "r", "z", "n", "h"], rows),
                matrix("h", output[0, :, 0], columns=[f"t={t}" for t in range(1, len(rows) + 1)]),
            ],
        ),
    ]
    about = "The gated recurrent unit has two gates and three quarters of an LSTM's parameters (Cho et al. 2014)."
    return Explanation("gru", "GRU", about, steps)


@torch.no_grad()
def _of_run(topic: str, cell: str, names: tuple[str, ...], options: LSTMOptions | GRUOptions, run: Run) -> Explanation:
    """The gates of a run's first layer, token by token: of one unit, and the means over all."""
    name, network = next(iter(modules_of(run, CELLS[topic], cell, f"--model {topic}").items()))
    example = run_example(run, options.text)
    if not 0 <= options.unit < network.hidden_size:
        raise UserError(f"no unit {options.unit}: units go from 0 to {network.hidden_size - 1}.")
    [calls] = calls_of(run, example, [network], lambda _, arguments, options, output: (arguments[0], output[0]))
    (inputs, outputs), rows = calls[-1], []
    tokens = example.tokens_of(name, inputs.size(1))
    hidden = memory = inputs.new_zeros(1, network.hidden_size)
    for x in inputs[0]:
        if topic == "lstm":
            gates: Any = lstm_gates(network, x.unsqueeze(0), hidden, memory)
            memory = gates.cell
        else:
            gates = gru_gates(network, x.unsqueeze(0), hidden)
        hidden = gates.hidden
        rows.append(torch.cat(tuple(gates)))  # (values, D)
    values = torch.stack(rows).cpu()  # (T, values, D)
    figures: list[Figure] = [matrix(f"unit {options.unit}", values[:, :, options.unit], rows=tokens, columns=names)]
    means: list[Figure] = [matrix("means over the units", values.mean(-1), rows=tokens, columns=names)]
    if network.num_layers == 1:
        forward = outputs[0, :, : network.hidden_size].cpu()  # those of a backward network follow
        difference = float((values[:, -1] - forward).abs().max())
        means.append(matrix("largest difference from the fused kernel's h", difference))
    steps = [
        Step(
            "One unit, token by token",
            f"Layer 0 of {network.hidden_size} units{part_of(name)}; --set unit=N.",
            figures=figures,
        ),
        Step("All units", "What the layer does on average; gates lie between 0 and 1.", figures=means),
    ]
    return Explanation(topic, f"{cell} of {run.path}", f"Gates of a trained network.{notes_of(example)}", steps)
