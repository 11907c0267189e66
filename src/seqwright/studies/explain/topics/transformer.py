"""A Transformer decoder block (worked example 5): forward, backward, SGD steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import IGNORE, Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.runs.run import Run
from seqwright.studies.explain.examples import VOCABULARY, defaults, example, parameter_matrix
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions, Vector
from seqwright.studies.explain.recording import Recorded, recorded, set_parameters
from seqwright.studies.explain.topics.of_run import blocks_of_run
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer

BLOCK = "encoder.encoder.blocks.0"
NAMES = {
    "E": "embedding.weight",
    "W_O": f"{BLOCK}.attention.output.weight",
    "W_1": f"{BLOCK}.feed_forward.up.weight",
    "b_1": f"{BLOCK}.feed_forward.up.bias",
    "W_2": f"{BLOCK}.feed_forward.down.weight",
    "b_2": f"{BLOCK}.feed_forward.down.bias",
    "W_out": "head.readout.weight",
    "b_out": "head.readout.bias",
}
"""Names of parameters, and ours; W_Q, W_K and W_V are one matrix here."""
PROJECTION = f"{BLOCK}.attention.query_key_value.weight"
EXAMPLE, DEFAULTS = example("transformer"), defaults("transformer")


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(TopicOptions):
    ids: tuple[int, ...] = tuple(EXAMPLE.ids)
    """Input: <sos> có chí thì."""
    target: int = EXAMPLE.target
    """Next token: nên."""
    E: Rows = DEFAULTS["embedding.weight"]
    W_Q: Rows = DEFAULTS["query.weight"]
    """Weights are (out, in) as in PyTorch."""
    W_K: Rows = DEFAULTS["key.weight"]
    W_V: Rows = DEFAULTS["value.weight"]
    W_O: Rows = DEFAULTS["output.weight"]
    W_1: Rows = DEFAULTS["up.weight"]
    b_1: Vector = DEFAULTS["up.bias"]
    W_2: Rows = DEFAULTS["down.weight"]
    b_2: Vector = DEFAULTS["down.bias"]
    W_out: Rows = DEFAULTS["readout.weight"]
    b_out: Vector = DEFAULTS["readout.bias"]
    learning_rate: float = 0.1
    steps: int = 3
    """SGD steps."""
    text: str = ""
    """Text that a run is shown on."""

    def __post_init__(self) -> None:
        if not all(0 <= id < len(VOCABULARY) for id in (*self.ids, self.target)):
            raise UserError(f"ids and target go from 0 to {len(VOCABULARY) - 1}: `seqwright explain vocabulary`.")
        if not 1 <= self.steps <= 100:
            raise UserError(f"steps must be 1 to 100, not {self.steps}.")
        if self.learning_rate <= 0:
            raise UserError(f"learning_rate must be above 0, not {self.learning_rate}.")


def model_of(options: TransformerOptions) -> Any:
    """The shipped GPT with one post-LN block, no positions and a flattening read-out, with the example's weights."""
    model = build.model(
        build.model_config(
            {
                "kind": "gpt",
                "layers": 1,
                "width": 4,
                "heads": 2,
                "context": len(options.ids),
                "ffn_width": 8,
                "positions": "none",
                "norm_position": "post",
                "tied": False,
                "readout": "flatten",
            }
        ),
        Vocabulary(size=len(VOCABULARY)),
    ).double()
    values = {ours: torch.tensor(getattr(options, name), dtype=torch.float64) for name, ours in NAMES.items()}
    projections = [torch.tensor(weight, dtype=torch.float64) for weight in (options.W_Q, options.W_K, options.W_V)]
    set_parameters(model, values | {PROJECTION: torch.cat(projections)})
    for name, parameter in model.named_parameters():
        if name.endswith(("query_key_value.bias", "output.bias")):  # the example's attention has none
            torch.nn.init.zeros_(parameter).requires_grad_(False)
    return model


def forward_backward(model: Any, options: TransformerOptions) -> tuple[Recorded, Tensor, Tensor]:
    """Recorded values, probabilities (V,) and loss; gradients are in the parameters."""
    target = [IGNORE] * (len(options.ids) - 1) + [options.target]
    batch = Batch.of_text(torch.tensor([list(options.ids)]), torch.tensor([target]))
    model.zero_grad()
    with recorded(model) as record:
        hidden, _ = model.hidden(batch)
        loss, _ = model.head.loss(hidden, batch.target)
    loss.backward()
    return record, model.head.log_probs(hidden)[0, -1].exp().detach(), loss.detach()


def transformer(options: TransformerOptions, run: Run | None = None) -> Explanation:
    """One decoder block with two heads, its gradients, and SGD steps; or the blocks of a run."""
    if run is not None:
        return blocks_of_run(options.text, run)
    tokens, target = [VOCABULARY[id] for id in options.ids], VOCABULARY[options.target]
    model = model_of(options)
    record, probabilities, loss = forward_backward(model, options)
    call = record.attention[f"{BLOCK}.attention.attend"]

    def output(name: str) -> Tensor:
        return record.outputs[f"{BLOCK}.{name}"][0]

    queries, keys, values = output("attention.query_key_value").chunk(3, -1)
    gradients = _gradients(model)
    losses = [(0, float(loss), float(probabilities[options.target]))]
    first: list[Tensor] = []
    sgd = optimizer(model, TrainingConfig(optimizer="sgd", learning_rate=options.learning_rate, weight_decay=0.0))
    for step in range(1, options.steps + 1):
        sgd.step()
        first = first or [model.get_parameter(NAMES["W_2"]).detach().clone()]
        _, after, loss_after = forward_backward(model, options)
        losses.append((step, float(loss_after), float(after[options.target])))
    labels: dict[str, Any] = {"rows": tokens, "columns": tokens}
    heads = range(call.weights.size(1))

    def weights(*names: str) -> list[Figure]:
        return [parameter_matrix(name, getattr(options, name)) for name in names]

    steps = [
        Step(
            "Embed",
            f"Four tokens of width 4, without positions; the target is {target}.",
            "X = E[ids]",
            [*weights("E"), matrix("X", record.outputs["embedding"][0], rows=tokens)],
        ),
        Step(
            "Queries, keys, values",
            "One matrix product, split into three; each into two heads of size 2. PyTorch stores weights as (out, in).",
            "Q = X W_Qᵀ    K = X W_Kᵀ    V = X W_Vᵀ",
            [
                *weights("W_Q", "W_K", "W_V"),
                *(matrix(name, part, rows=tokens) for name, part in (("Q", queries), ("K", keys), ("V", values))),
            ],
        ),
        Step(
            "Causal attention of two heads",
            "Each position attends to itself and what came before it.",
            "P = softmax(Q Kᵀ / √2 + mask)",
            [
                *(matrix(f"S of head {h + 1}", call.scores[0, h], **labels) for h in heads),
                *(matrix(f"P of head {h + 1}", call.weights[0, h], **labels, heat=True) for h in heads),
            ],
            ["a masked block's keys are printed up to i-1: a position attends up to and including itself."],
        ),
        Step(
            "Join heads, add and normalize",
            "The residual connection adds the input; post-LN normalizes the sum.",
            "Z = LayerNorm(X + [P₁V₁ P₂V₂] W_Oᵀ)",
            [
                *weights("W_O"),
                matrix("attention output", output("attention"), rows=tokens),
                matrix("Z", output("attention_norm"), rows=tokens),
            ],
        ),
        Step(
            "Feed-forward network",
            "The same two layers at every position: four features to eight, GELU, and back.",
            "F = GELU(Z W_1ᵀ + b_1) W_2ᵀ + b_2    H = LayerNorm(Z + F)",
            [
                *weights("W_1", "b_1", "W_2", "b_2"),
                matrix("Z W_1ᵀ + b_1", output("feed_forward.up"), rows=tokens),
                matrix("GELU", output("feed_forward.activation"), rows=tokens),
                matrix("F", output("feed_forward.down"), rows=tokens),
                matrix("H", output("feed_forward_norm"), rows=tokens),
            ],
        ),
        Step(
            "Probabilities and loss",
            "Way 2 of the lectures: all positions flattened into one read-out.",
            f"p = softmax(W_out [h1 h2 h3 h4] + b_out)    L = -log p({target})",
            [
                *weights("W_out", "b_out"),
                matrix("p", probabilities, columns=VOCABULARY, heat=True),
                matrix("L", float(loss)),
            ],
        ),
        Step(
            "Gradients",
            "Back-propagation through read-out, normalizations, residuals and softmax; rows of E that were not read"
            " have gradient 0.",
            "∂L/∂θ",
            [parameter_matrix(f"∂L/∂{name}", gradient) for name, gradient in gradients.items()],
        ),
        Step(
            "SGD",
            f"All parameters, learning rate {options.learning_rate:g}.",
            f"θ ← θ - {options.learning_rate:g} ∂L/∂θ",
            [table("losses", ["step", "loss", f"p({target})"], losses), matrix("W_2 after one step", first[0])],
            [
                "after one step the slide prints loss 0.1699 and p 0.6174; they are 1.1699 and 0.3104.",
                "W_fc2[6,0] after one step, here W_2[0,6], is +0.1515.",
            ],
        ),
    ]
    about = (
        "A Transformer block is attention between positions and a small network at each of them, with residual"
        " connections and normalization (Vaswani et al. 2017)."
    )
    return Explanation("transformer", "Transformer decoder block", about, steps)


def _gradients(model: Any) -> dict[str, Tensor]:
    query, key, value = model.get_parameter(PROJECTION).grad.clone().chunk(3)
    gradients = {name: model.get_parameter(ours).grad.clone() for name, ours in NAMES.items()}
    norms = {f"γ_{n}": f"{BLOCK}.{part}_norm.weight" for n, part in ((1, "attention"), (2, "feed_forward"))}
    norms |= {f"β_{n}": f"{BLOCK}.{part}_norm.bias" for n, part in ((1, "attention"), (2, "feed_forward"))}
    gradients |= {name: model.get_parameter(ours).grad.clone() for name, ours in norms.items()}
    return {"W_Q": query, "W_K": key, "W_V": value} | gradients
