"""An Elman network (worked example 4): forward, back-propagation through time, one SGD step; networks that add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Batch, Source, Vocabulary
from seqwright.core.config import UserError
from seqwright.runs.run import Run
from seqwright.studies.explain.examples import VOCABULARY, defaults, example, parameter_matrix
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions, Vector
from seqwright.studies.explain.recording import recorded, set_parameters
from seqwright.studies.explain.topics.of_run import elman_of_run
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer

NETWORK = "encoder.encoder.network"
NAMES = {
    "E": "embedding.weight",
    "W_ih": f"{NETWORK}.weight_ih_l0",
    "W_hh": f"{NETWORK}.weight_hh_l0",
    "b_ih": f"{NETWORK}.bias_ih_l0",
    "b_hh": f"{NETWORK}.bias_hh_l0",
    "W_out": "head.readout.weight",
    "b_out": "head.readout.bias",
}
"""The lectures' names of parameters, and ours."""
TRAINED = {"the recurrent layer": ("encoder.",), "recurrent layer and read-out": ("encoder.", "head."), "all": ("",)}
EXAMPLE, DEFAULTS = example("rnn"), defaults("rnn")
WAY_3_INPUTS = [[-0.88, 0.81, 0.77], [-1.27, 0.84, 0.04]]
WAY_3_WEIGHTS = {
    "weight_ih_l0": [
        [0.116433, -0.053187, 0.073911],
        [-0.457559, 0.357172, 0.191992],
        [0.064114, -0.041354, 0.001408],
        [0.300631, -0.246367, -0.164221],
    ],
    "weight_hh_l0": [
        [0.014506, -0.112522, 0.014539, 0.087021],
        [-0.017195, 0.133377, -0.017234, -0.103150],
        [0.004746, -0.036810, 0.004756, 0.028468],
        [0.008156, -0.063262, 0.008174, 0.048925],
    ],
}
"""The slide prints inputs and states, not its weights: these are the smallest that lead from the one to the other."""


@dataclass(frozen=True, kw_only=True)
class RNNOptions(TopicOptions):
    ids: tuple[int, ...] = tuple(EXAMPLE.ids)
    """Input: <sos> có chí thì."""
    target: int = EXAMPLE.target
    """Next token: nên."""
    E: Rows = DEFAULTS["embedding.weight"]
    """Embedding of the 13 tokens of `explain vocabulary`."""
    W_ih: Rows = DEFAULTS["rnn.weight_ih"]
    """Input weights, (out, in) as in PyTorch."""
    W_hh: Rows = DEFAULTS["rnn.weight_hh"]
    """Recurrent weights."""
    b_ih: Vector = DEFAULTS["rnn.bias_ih"]
    b_hh: Vector = DEFAULTS["rnn.bias_hh"]
    W_out: Rows = DEFAULTS["readout.weight"]
    """Read-out of all four hidden states, flattened (way 2)."""
    b_out: Vector = DEFAULTS["readout.bias"]
    learning_rate: float = 0.1
    text: str = ""
    """Text that a run is shown on."""
    unit: int = 0
    """Unit of a run's first layer, from 0."""

    run_only: ClassVar[tuple[str, ...]] = ("unit",)

    def __post_init__(self) -> None:
        if not all(0 <= id < len(VOCABULARY) for id in (*self.ids, self.target)):
            raise UserError(f"ids and target go from 0 to {len(VOCABULARY) - 1}: `seqwright explain vocabulary`.")
        if self.learning_rate <= 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")


def model_of(options: RNNOptions) -> Any:
    """The shipped language model with the example's weights."""
    table = {"kind": "rnn", "width": 4, "readout": "flatten", "length": len(options.ids)}
    model = build.model(build.model_config(table), Vocabulary(size=len(VOCABULARY))).double()
    values = {ours: torch.tensor(getattr(options, name), dtype=torch.float64) for name, ours in NAMES.items()}
    set_parameters(model, values)
    return model


@dataclass
class Pass:
    """A forward and backward pass, one token at a time, so that every hidden state has a gradient."""

    hidden: list[Tensor]
    from_readout: list[Tensor]
    """∂L/∂h_t through the read-out alone."""
    through_time: list[Tensor]
    """∂L/∂h_t through h_(t+1) and all later states."""
    probabilities: Tensor
    loss: Tensor


def forward_backward(model: Any, ids: tuple[int, ...], target: int) -> Pass:
    """Steps through the ids with the model's state; the graph spans all steps."""
    state = model.start(Source.empty(1), capacity=len(ids))
    outputs, states = [], []
    for id in ids:
        token = torch.tensor([[id]])
        with recorded(model) as record:
            flat, state = model.hidden(Batch.of_text(token, token), state)
        outputs.append(record.outputs[NETWORK])
        state.inner.hidden.retain_grad()
        states.append(state.inner.hidden)
    loss, _ = model.head.loss(flat, torch.tensor([[target]]))
    loss.backward()
    return Pass(
        hidden=[output[0, 0].detach() for output in outputs],
        from_readout=[_gradient(output)[0, 0] for output in outputs],
        through_time=[_gradient(hidden)[0, 0] for hidden in states],
        probabilities=model.head.log_probs(flat)[0, 0].exp().detach(),
        loss=loss.detach(),
    )


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def sgd_step(model: Any, learning_rate: float, trained: tuple[str, ...] = ("",)) -> None:
    """One step of the shipped SGD over the parameters whose names begin so."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    config = TrainingConfig(optimizer="sgd", learning_rate=learning_rate, weight_decay=0.0, device="cpu")
    optimizer(model, config).step()
    model.requires_grad_(True)


def rnn(options: RNNOptions, run: Run | None = None) -> Explanation:
    """Way 2 of the lectures: embedding, Elman layer, all hidden states flattened into a read-out; or the first Elman
    layer of a run."""
    if run is not None:
        return elman_of_run(options.text, options.unit, run)
    tokens, target = [VOCABULARY[id] for id in options.ids], VOCABULARY[options.target]
    hidden_names = [f"h{t}" for t in range(1, len(tokens) + 1)]
    model = model_of(options)
    done = forward_backward(model, options.ids, options.target)
    gradients = {name: model.get_parameter(ours).grad for name, ours in NAMES.items()}
    after = []
    for what, trained in TRAINED.items():
        changed = model_of(options)
        forward_backward(changed, options.ids, options.target)
        sgd_step(changed, options.learning_rate, trained)
        once_more = forward_backward(changed, options.ids, options.target)
        after.append((what, float(once_more.loss), float(once_more.probabilities[options.target])))
    new = {name: changed.get_parameter(NAMES[name]) for name in ("W_hh", "b_hh")}
    embedded = torch.tensor(options.E, dtype=torch.float64)[list(options.ids)]
    total = [direct + later for direct, later in zip(done.from_readout, done.through_time, strict=True)]
    steps = [
        Step(
            "Embed",
            f"The input {' '.join(tokens)} as ids, and their rows of the embedding; the target is {target}.",
            "x_t = E[id_t]",
            [parameter_matrix("E", options.E), matrix("x", embedded, rows=tokens)],
        ),
        Step(
            "Weights",
            "The same weights are used at every time step.",
            "h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh),   h_0 = 0",
            [matrix(name, getattr(options, name)) for name in ("W_ih", "W_hh", "b_ih", "b_hh")],
        ),
        Step(
            "Forward through time",
            "Each hidden state is made of the token and the state before it: h4 has read all four.",
            "h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)",
            [matrix("h", torch.stack(done.hidden), rows=hidden_names)],
        ),
        Step(
            "Probabilities and loss",
            "Way 2: all hidden states in one vector of 16 numbers, and a linear layer to 13 logits.",
            f"p = softmax(W_out [h1 h2 h3 h4] + b_out)    L = -log p({target})",
            [
                *(parameter_matrix(name, getattr(options, name)) for name in ("W_out", "b_out")),
                matrix("p", done.probabilities, columns=VOCABULARY, heat=True),
                matrix("L", float(done.loss)),
            ],
        ),
        Step(
            "Back-propagation through time",
            "A hidden state matters twice: for the read-out now, and for all states after it. Its gradient is the sum.",
            "∂L/∂h_t = ∂L/∂h_t (read-out) + W_hhᵀ (1 - h_(t+1)²) ∂L/∂h_(t+1)",
            [
                matrix("from the read-out", torch.stack(done.from_readout), rows=hidden_names),
                matrix("through time", torch.stack(done.through_time), rows=hidden_names),
                matrix("∂L/∂h", torch.stack(total), rows=hidden_names),
            ],
        ),
        Step(
            "Gradients of the weights",
            "Every time step adds its part, since all use the same weights. Both biases have the same gradient.",
            "∂L/∂W_hh = Σ_t δ_t h_(t-1)ᵀ,   δ_t = (1 - h_t²) ∂L/∂h_t",
            [parameter_matrix(f"∂L/∂{name}", gradient) for name, gradient in gradients.items()],
        ),
        Step(
            "One SGD step",
            "Against the gradient, by the learning rate. The loss falls most where all parameters learn.",
            f"θ ← θ - {options.learning_rate:g} ∂L/∂θ",
            [
                *(matrix(f"{name} after", value) for name, value in new.items()),
                table("after one step", ["trained", "loss", f"p({target})"], after),
            ],
        ),
        _without_readout(),
        *_linear_networks(),
    ]
    about = "A recurrent network reads token by token and carries what it has read in a hidden state (Elman 1990)."
    return Explanation("rnn", "Elman network", about, steps)


@torch.no_grad()
def _without_readout() -> Step:
    """Way 3 of the lectures with a hidden state as wide as the vocabulary."""
    table = {"kind": "rnn", "width": 4, "embedding": 3, "readout": "none"}
    model: Any = build.model(build.model_config(table), Vocabulary(size=4)).double()
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in WAY_3_WEIGHTS.items()}
    zero = torch.zeros(4, dtype=torch.float64)
    set_parameters(model.encoder.network, values | {"bias_ih_l0": zero, "bias_hh_l0": zero})
    x = torch.tensor(WAY_3_INPUTS, dtype=torch.float64)
    set_parameters(model, {"embedding.weight": torch.cat([x, torch.zeros(2, 3, dtype=torch.float64)])})
    ids = torch.tensor([[0, 1]])
    logits = model(Batch.of_text(ids, ids))[0]  # (T, V): the hidden states
    names = [f"t={t}" for t in (1, 2)]
    return Step(
        "Way 3 without a read-out",
        "Every position predicts the next token. Where the hidden state is as wide as the vocabulary, here of four"
        " tokens, it needs no read-out: its values are the logits. (The slide leaves its weights out; these are the"
        " smallest that give its states.)",
        "h_t = tanh(W_ih x_t + W_hh h_(t-1))    p_t = softmax(h_t)",
        [
            matrix("x of way 3", x, rows=names),
            *(matrix(f"{name} of way 3", value) for name, value in zip(("W_ih", "W_hh"), values.values(), strict=True)),
            matrix("h of way 3", logits, rows=names),
            matrix("p of way 3", logits.softmax(-1), rows=names, heat=True),
        ],
    )


def _linear_networks() -> list[Step]:
    """The lectures' summation and comparison networks."""
    totals = _linear_rnn([1.0], [[2.0], [-0.5], [1.0], [1.0]])
    differences = _linear_rnn([1.0, -1.0], [[2.0, -2.0], [0.0, 3.5], [1.0, 2.2]])
    return [
        Step(
            "A network that sums",
            "Without an activation and with weights 1, the hidden state is the sum of the inputs so far.",
            "h_t = x_t + h_(t-1)",
            [
                matrix("inputs", [2.0, -0.5, 1.0, 1.0]),
                matrix("sums", totals.flatten()),
            ],
        ),
        Step(
            "A network that compares",
            "Input weights +1 and -1 sum the difference of two sequences; the output says which sum is greater.",
            "h_t = x_t - y_t + h_(t-1)    output = σ(5 h_t)",
            [
                matrix("pairs", [[2.0, -2.0], [0.0, 3.5], [1.0, 2.2]], columns=["x", "y"]),
                matrix("comparison", torch.sigmoid(5 * differences).flatten()),
            ],
        ),
    ]


@torch.no_grad()
def _linear_rnn(input_weights: list[float], inputs: list[list[float]]) -> Tensor:
    entry = build.CAUSAL_ENCODERS["rnn"]
    encoder = entry.build(entry.config(width=1, embedding=len(input_weights), activation="linear")).double()
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    weights = {"weight_ih_l0": torch.tensor([input_weights], dtype=torch.float64), "weight_hh_l0": one}
    set_parameters(encoder.network, weights | {"bias_ih_l0": zero, "bias_hh_l0": zero})
    output, _ = encoder(torch.tensor([inputs], dtype=torch.float64))
    return output[0]
