"""Attention (worked example 6): scores, softmax and averages; scaling, order, score kinds; of a run, its heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.layers.attention import Attend, SelfAttention
from seqwright.layers.attention_scores import SCORES, GlobalAttention
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.options import Rows, TopicOptions, Vector
from seqwright.studies.explain.recording import Recorded, recorded, set_parameters
from seqwright.studies.explain.topics.of_run import attention_of_run

ABOUT = (
    "Every position has a query, a key and a value; the output of a position is the average of all values, weighted by"
    " how well its query matches their keys (Vaswani et al. 2017)."
)


@dataclass(frozen=True, kw_only=True)
class OneHead(TopicOptions):
    """The lecture's attention head of width 3; row vectors, so that q = x W_Q."""

    X: Rows = ((-0.1, 0.1, 0.3), (0.4, -1.1, -0.3))
    """Input vectors, one row for each token."""
    W_Q: Rows = ((-0.35, 0.51, 0.50), (0.36, -0.47, -0.29), (-0.51, -0.14, -0.56))
    W_K: Rows = ((-0.49, -0.68, 0.18), (-0.44, -0.46, 0.18), (0.07, -0.10, 0.44))
    W_V: Rows = ((-0.41, 0.39, -0.65), (-0.40, -0.07, -0.34), (-0.55, -0.13, -0.29))
    W_O: Rows = ((-0.36, -0.08, 0.32), (0.27, 0.05, 0.15), (-0.05, -0.28, 0.05))

    resizable: ClassVar[tuple[str, ...]] = ("X", "C", "keys")

    def __post_init__(self) -> None:
        for name in ("X", "C"):
            if any(len(row) != len(self.W_Q) for row in getattr(self, name, ())):
                raise UserError(f"each row of {name} has {len(self.W_Q)} numbers.")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(OneHead):
    raw_scores: Vector = (112.0, 96.0)
    """Two raw scores of a head of size d_k, to show what scaling is for."""
    d_k: int = 64
    """Head size of these scores."""
    query: Vector = (1.0, 2.0)
    """Query of the score kinds."""
    keys: Rows = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    """Keys of the score kinds."""
    text: str = ""
    """With a run: the text whose attention is shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.d_k <= 4096:
            raise UserError(f"d_k must be 1 to 4096, not {self.d_k}.")
        if any(len(row) != len(self.query) for row in self.keys):
            raise UserError(f"each row of keys has {len(self.query)} numbers, as query has.")


def tensor(values: Any) -> Tensor:
    """float64: examples are checked to the last digit."""
    return torch.tensor(values, dtype=torch.float64)


def one_head(options: OneHead, *, causal: bool = False) -> SelfAttention:
    """The shipped layer with the example's weights, which PyTorch stores transposed."""
    layer = SelfAttention(len(options.W_Q), 1, bias=False, causal=causal).double()
    projections = torch.cat([tensor(weight).T for weight in (options.W_Q, options.W_K, options.W_V)])
    set_parameters(layer, {"query_key_value.weight": projections, "output.weight": tensor(options.W_O).T})
    return layer


def run_layer(layer: nn.Module, x: Tensor) -> tuple[Tensor, Recorded]:
    """Outputs (T, D) of self-attention over one row x (T, D), and everything inside."""
    with torch.no_grad(), recorded(layer) as record:
        output = layer(x.unsqueeze(0), torch.arange(len(x)).unsqueeze(0))
    return output[0], record


def attention(options: AttentionOptions, run: Run | None = None) -> Explanation:
    """Self-attention of two tokens; with a run, the attention weights of its layers and heads on a text."""
    if run is not None:
        return attention_of_run(options.text, ABOUT, run)
    x = tensor(options.X)
    tokens = [f"x{n}" for n in range(1, len(x) + 1)]
    y, record = run_layer(one_head(options), x)
    call = record.attention["attend"]
    alone, first = run_layer(one_head(options), x[:1])
    weights = {name: matrix(name, getattr(options, name)) for name in ("W_Q", "W_K", "W_V", "W_O")}
    steps = [
        Step(
            "Inputs and weights",
            "Two tokens of width 3, and four learned matrices. Any number can be changed with --set: all that follows"
            " is computed again.",
            figures=[matrix("X", x, rows=tokens), *weights.values()],
            errata=["one slide prints -0.29 for W_Q[2,2]; the other slides and the results have -0.56."],
        ),
        Step(
            "Queries, keys and values",
            "Each is a linear map of the same input.",
            "Q = X W_Q    K = X W_K    V = X W_V",
            [matrix(name, getattr(call, field)[0, 0], rows=tokens) for name, field in _PARTS.items()],
            ["V's second row is printed [-0.02, -0.02, 0.05]; it is [0.441, 0.272, 0.201]."],
        ),
        Step(
            "Scores",
            "How well each query matches each key; √d keeps their size independent of the width.",
            f"S = Q Kᵀ / √{x.size(1)}",
            [matrix("S", call.scores[0, 0], rows=tokens, columns=tokens)],
        ),
        Step(
            "Weights",
            "The softmax makes each row positive with sum one.",
            "P = softmax(S), along rows",
            [matrix("P", call.weights[0, 0], rows=tokens, columns=tokens, heat=True)],
            ["“sigmoid(QKᵀ/√d)V” on a slide is softmax wherever numbers are shown."],
        ),
        Step(
            "Averages and outputs",
            "The values are averaged with these weights, and mapped once more.",
            "A = P V    Y = A W_O",
            [matrix("A", record.outputs["attend"][0, 0], rows=tokens), matrix("Y", y, rows=tokens)],
        ),
        Step(
            "A single token",
            "A softmax over one score is 1: the only token attends to itself, whatever its score is.",
            "P = [1]    A = V    Y = V W_O",
            [
                matrix("S of one token", first.attention["attend"].scores[0, 0]),
                matrix("P of one token", first.attention["attend"].weights[0, 0], heat=True),
                matrix("A of one token", first.outputs["attend"][0, 0]),
                matrix("Y of one token", alone),
            ],
            ["the slide prints Y equal to A: the map W_O is missing there."],
        ),
        _without_parameters(x, tokens),
        _scaling(options),
        _order(),
        _score_kinds(options),
    ]
    return Explanation("attention", "Self-attention", ABOUT, steps)


_PARTS = {"Q": "query", "K": "key", "V": "value"}


def _weights(query: Tensor, key: Tensor) -> Tensor:
    """Weights (T, K) of one row and one head."""
    return Attend().weights(query[None, None], key[None, None])[0, 0]


def _outputs(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return Attend()(query[None, None], key[None, None], value[None, None])[0, 0]


def _without_parameters(x: Tensor, tokens: list[str]) -> Step:
    return Step(
        "Without parameters",
        "The same with queries, keys and values that are the inputs themselves.",
        f"P = softmax(X Xᵀ / √{x.size(1)})    A = P X",
        [
            matrix("P without parameters", _weights(x, x), rows=tokens, columns=tokens, heat=True),
            matrix("A without parameters", _outputs(x, x, x), rows=tokens),
        ],
    )


def _scaling(options: AttentionOptions) -> Step:
    raw = tensor(options.raw_scores)
    query = torch.zeros(1, options.d_k, dtype=torch.float64)
    keys = torch.zeros(len(raw), options.d_k, dtype=torch.float64)
    query[0, 0], keys[:, 0] = 1, raw
    names = [f"k{n}" for n in range(1, len(raw) + 1)]
    return Step(
        "What the scale is for",
        "Dot products grow with the head size. Unscaled, the softmax is almost one-hot, and its gradient almost zero.",
        f"softmax(S / √{options.d_k})  against  softmax(S)",
        [
            matrix("raw scores", raw, columns=names),
            matrix("scaled scores", Attend().scores(query[None, None], keys[None, None])[0, 0, 0], columns=names),
            matrix("scaled weights", _weights(query, keys)[0], columns=names, heat=True),
            matrix("unscaled weights", raw.softmax(-1), columns=names, heat=True),
        ],
    )


def _order() -> Step:
    x = torch.diag(tensor([1.0, 1, 2, 1]))
    # Keys whose scores are the logarithms of these weights: a query of four ones over keys log(w) / √4.
    a4 = tensor([0.1, 0.2, 0.6, 0.1])
    query, key = torch.ones(1, 4, dtype=torch.float64), a4.log().unsqueeze(1).expand(4, 4) / 2
    swapped = [0, 2, 1, 3]
    return Step(
        "Attention alone does not know order",
        "Exchanging x2 and x3 leaves the output of x4 unchanged: their weights move with them. Order must be added:"
        " seqwright explain positions.",
        "x'4 = Σⱼ a4ⱼ xⱼ",
        [
            matrix("a4", _weights(query, key)[0], columns=["x1", "x2", "x3", "x4"], heat=True),
            matrix("x'4", _outputs(query, key, x)[0]),
            matrix("x'4 with x2 and x3 exchanged", _outputs(query, key[swapped], x[swapped])[0]),
        ],
    )


def _score_kinds(options: AttentionOptions) -> Step:
    query, keys = tensor([[options.query]]), tensor([options.keys])
    width = query.size(-1)
    swap, identity = torch.eye(width, dtype=torch.float64).flip(0), torch.eye(width, dtype=torch.float64)
    parameters: dict[str, dict[str, Tensor]] = {
        "general": {"map.weight": swap},
        "additive": {
            "query.weight": identity,
            "memory.weight": identity,
            "energy.weight": torch.ones(1, width, dtype=torch.float64),
        },
        "concat": {
            "map.weight": torch.cat([identity, identity], 1),
            "energy.weight": torch.ones(1, width, dtype=torch.float64),
        },
    }
    formulas = {
        "dot": "q · h",
        "scaled-dot": "q · h / √D",
        "general": "qᵀ W h, W exchanges features",
        "additive": "vᵀ tanh(W₁ q + W₂ h), W₁ = W₂ = I, v = 1",
        "concat": "vᵀ tanh(W [q; h]), W = [I I], v = 1",
    }
    rows: list[tuple[Any, ...]] = []
    with torch.no_grad():
        for kind, formula in formulas.items():
            score = SCORES[kind](width).double()
            set_parameters(score, parameters.get(kind, {}))
            attend = GlobalAttention(score)
            projected = attend.keys(keys)
            scores, weights = score(query, projected)[0, 0], attend.weights(query, projected)[0, 0]
            rows.append((kind, formula, *scores.tolist(), *weights.tolist()))
    names = [f"h{n}" for n in range(1, keys.size(1) + 1)]
    return Step(
        "Score kinds",
        "Recurrent encoder-decoders compare a decoder state q with encoder states h in several ways (Bahdanau et al."
        " 2015; Luong et al. 2015); Transformers use the scaled dot product.",
        "",
        [
            matrix("q", options.query),
            matrix("h", options.keys, rows=names),
            table(
                "score kinds",
                ["kind", "score", *(f"score {h}" for h in names), *(f"weight {h}" for h in names)],
                rows,
            ),
        ],
    )
