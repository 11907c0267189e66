"""What the layers of a trained run compute on a text: Elman states, attention, heads, normalizations, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.attention_recorder import attends_source
from seqwright.layers.attention import SelfAttention
from seqwright.layers.elman import Elman
from seqwright.layers.recording import attention_weights, recorded_calls
from seqwright.layers.transformer_block import Block
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Cell, Figure, matrix, table, visible
from seqwright.studies.explain.text import notes_of, run_example
from seqwright.tasks.example import ENCODER, Example

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


@torch.no_grad()
def elman_of_run(text: str, unit: int, run: Run) -> Explanation:
    """One unit of a run's first Elman layer, token by token: what the input and the state before add up to."""
    name, network = next(iter(modules_of(run, (nn.RNN, Elman), "Elman network", "--model rnn").items()))
    example = run_example(run, text)
    width = network.weight_hh_l0.size(0)
    if not 0 <= unit < width:
        raise UserError(f"no unit {unit}: units go from 0 to {width - 1}.")
    [[(inputs, outputs)]] = calls_of(
        run, example, [network], lambda _, arguments, options, output: (arguments[0], output[0])
    )
    tokens = example.tokens_of(name, inputs.size(1))
    activation = network.activation if isinstance(network, Elman) else ACTIVATIONS[network.nonlinearity]
    hidden, rows, states = inputs.new_zeros(width), [], []
    for x in inputs[0]:
        from_input = F.linear(x, network.weight_ih_l0, network.bias_ih_l0)
        from_state = F.linear(hidden, network.weight_hh_l0, network.bias_hh_l0)
        hidden = activation(from_input + from_state)
        rows.append([float(part[unit]) for part in (from_input, from_state, hidden)])
        states.append(hidden)
    figures: list[Figure] = [
        matrix(f"unit {unit}", rows, rows=tokens, columns=["W_ih x + b_ih", "W_hh h + b_hh", "h"]),
    ]
    means: list[Figure] = [
        matrix("mean of |h| over the units", torch.stack(states).abs().mean(1).cpu(), columns=tokens),
    ]
    if len([name for name, _ in network.named_parameters() if name.startswith("weight_hh")]) == 1:
        difference = float((torch.stack(states) - outputs[0]).abs().max())
        means.append(matrix("largest difference from the network's own h", difference))
    steps = [
        Step(
            "One unit, token by token",
            f"Layer 0 of {width} units{part_of(name)}; --set unit=N.",
            "h_t = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)",
            figures,
        ),
        Step("All units", "Near 1 for tanh, units are saturated, and little gradient passes.", figures=means),
    ]
    return Explanation(
        "rnn", f"Elman network of {run.path}", f"Hidden states of a trained network.{notes_of(example)}", steps
    )


@torch.no_grad()
def attention_of_run(text: str, about: str, run: Run) -> Explanation:
    """Self-attention weights of every layer and head of a run."""
    words = "self-attention"
    if attends_source(run.model):
        words += ", but attention over its source (`explain cross-attention`)"
    layers = modules_of(run, SelfAttention, words, "--model gpt")
    example = run_example(run, text)
    calls = calls_of(run, example, [layer.attend for layer in layers.values()], attention_weights)
    steps = [
        Step(
            "Tokens",
            f"The text as {run.path} reads it.",
            figures=[table("tokens", ["position", "token"], list(enumerate(example.source or example.tokens)))],
        )
    ]
    for layer, (name, [weights]) in enumerate(zip(layers, calls, strict=True)):
        tokens = example.tokens_of(name, weights.size(-1))
        figures: list[Figure] = [
            matrix(f"layer {layer}, head {head}", one, rows=tokens[-len(one) :], columns=tokens, heat=True)
            for head, one in enumerate(weights[0].cpu())
        ]
        prose = "Row: the token that attends; column: the token it attends to. Layers and heads are counted from 0."
        steps.append(Step(f"Layer {layer}{part_of(name)}", prose, "softmax(Q Kᵀ / √E)", figures))
    return Explanation("attention", f"Attention of {run.path}", about + notes_of(example), steps)


@torch.no_grad()
def mask_of_run(text: str, run: Run) -> Explanation:
    """Mask, scores and weights of the first head of a run."""
    name, layer = next(iter(modules_of(run, SelfAttention, "self-attention", "--model gpt").items()))
    example = run_example(run, text)
    [[scores]] = calls_of(
        run, example, [layer.attend], lambda attend, arguments, options, _: attend.scores(*arguments[:2], **options)
    )
    scores = scores[0, 0].cpu()  # (T, K)
    tokens = example.tokens_of(name, scores.size(-1))
    labels: dict[str, Any] = {"rows": tokens[-len(scores) :], "columns": tokens}
    allowed = scores.isfinite()
    masked = int((~allowed).sum())
    prose = f"1 where a token (row) may attend to another (column): {masked} of {allowed.numel()} scores are masked."
    steps = [
        Step("The mask", prose, "M[i, j] = 1 if i may attend to j, else 0", [matrix("M", allowed.int(), **labels)]),
        Step(
            "Scores and weights",
            f"Of head 0 of layer 0{part_of(name)}: exp(-∞) = 0, so that rows sum to one over what is allowed.",
            "P = softmax(S + log M)",
            [matrix("S masked", scores, **labels), matrix("P", scores.softmax(-1), **labels, heat=True)],
        ),
    ]
    about = f"Which tokens may attend to which in a trained model.{notes_of(example)}"
    return Explanation("masking", f"Mask of {run.path}", about, steps)


@torch.no_grad()
def heads_of_run(text: str, layer: int, run: Run) -> Explanation:
    """The heads of a layer of a run: shapes, weights, and what each reads."""
    layers = list(modules_of(run, SelfAttention, "self-attention", "--model gpt").items())
    example = run_example(run, text)
    if not 0 <= layer < len(layers):
        raise UserError(f"no layer {layer}: layers go from 0 to {len(layers) - 1}.")
    name, part = layers[layer]
    [[(weights, heads)]] = calls_of(run, example, [part.attend], lambda *call: (attention_weights(*call), call[-1]))
    weights, heads = weights[0].cpu(), heads[0].cpu()  # (H, T, T), (H, T, E)
    tokens = example.tokens_of(name, weights.size(-1))
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1).mean(-1)
    rows = [
        (head, float(entropy[head]), tokens[int(weights[head, -1].argmax())], float(weights[head, -1].max()))
        for head in range(len(weights))
    ]
    width = part.output.in_features
    steps = [
        Step(
            "One projection, split into heads",
            f"Layer {layer}{part_of(name)}: width {width} is split into {part.heads} heads of size"
            f" {width // part.heads}"
            + (f", which share {part.kv_heads} heads of keys and values." if part.kv_heads != part.heads else "."),
            "Q = X W_Qᵀ = [Q₁ … Q_H]    P = softmax(Q Kᵀ / √E)    Y = [P₁ V₁ … P_H V_H] W_Oᵀ",
            [
                table(
                    "shapes",
                    ["tensor", "shape"],
                    [
                        ("X", f"{len(tokens)} × {width}"),
                        ("Q K V", f"{len(tokens)} × {part.query_key_value.out_features}"),
                        ("P", " × ".join(map(str, weights.shape))),
                        ("A = P V", " × ".join(map(str, heads.shape))),
                        ("Y", f"{len(tokens)} × {width}"),
                    ],
                )
            ],
        ),
        Step(
            "What each head reads",
            "Mean entropy of its rows (0: one position; large: many), and what the last token attends to most.",
            "",
            [table("heads", ["head", "entropy, nats", "strongest", "weight"], rows)],
        ),
        *(
            Step(
                f"Head {head}",
                "Rows are queries: each sums to 1.",
                figures=[matrix(f"P of head {head}", p, rows=tokens, columns=tokens, heat=True)],
            )
            for head, p in enumerate(weights)
        ),
    ]
    about = f"Attention of a trained model; --set layer=N.{notes_of(example)}"
    return Explanation("multi-head", f"Heads of {run.path}", about, steps)


@torch.no_grad()
def norm_of_run(text: str, layer: int, run: Run) -> Explanation:
    """A normalization of a run: mean and deviation of each token's features before and after."""
    norms = modules_of(run, (nn.LayerNorm, nn.RMSNorm), "normalization", "--model gpt")
    example = run_example(run, text)
    heads = {id(norm) for part in run.model.modules() if isinstance(part, SelfAttention) for norm in part.children()}
    layers = [(name, norm) for name, norm in norms.items() if id(norm) not in heads]  # those of QK-norm have H vectors
    if not 0 <= layer < len(layers):
        raise UserError(f"no normalization {layer}: they go from 0 to {len(layers) - 1}.")
    name, norm = layers[layer]
    [[(x, y)]] = calls_of(run, example, [norm], _input_and_output)
    tokens = example.tokens_of(name, x.size(1))
    columns = ["mean before", "σ before", "mean after", "σ after"]
    values = torch.stack([x[0].mean(-1), x[0].std(-1, correction=0), y[0].mean(-1), y[0].std(-1, correction=0)], 1)
    gain = norm.weight.detach()
    steps = [
        Step(
            "Before and after",
            f"{type(norm).__name__} number {layer} of {len(layers)}, `{name}`, of {x.size(-1)} features; --set layer=N."
            " Its gains are learned, so that σ after need not be 1.",
            "y = γ (x - μ) / √(σ² + ε) + β" if isinstance(norm, nn.LayerNorm) else "y = γ x / √(Σ x² / D + ε)",
            [matrix("features of each token", values.cpu(), rows=tokens, columns=columns)],
        ),
        Step(
            "What was learned",
            "Gains γ start at 1: small ones mute a feature, large ones raise it.",
            "",
            [table("gains", ["least", "mean", "greatest"], [tuple(map(float, (gain.min(), gain.mean(), gain.max())))])],
        ),
    ]
    about = f"A normalization of a trained model.{notes_of(example)}"
    return Explanation("layer-norm", f"Normalization of {run.path}", about, steps)


@torch.no_grad()
def blocks_of_run(text: str, run: Run) -> Explanation:
    """The blocks of a run: what attention and feed-forward network add to the residual stream, and what it predicts."""
    named = modules_of(run, Block, "Transformer block", "--model gpt")
    example = run_example(run, text)
    blocks = list(named.values())
    sublayers = ["attention", *(["cross"] if any(block.cross is not None for block in blocks) else []), "feed_forward"]
    parts = [part for block in blocks for name in sublayers if (part := getattr(block, name)) is not None]
    calls = calls_of(run, example, [*blocks, *parts], _input_and_output)
    sizes = {id(module): _root_mean_square(call[0][1]) for module, call in zip([*blocks, *parts], calls, strict=True)}
    rows: list[Sequence[Cell]] = []
    for n, ((name, block), [(x, _)]) in enumerate(zip(named.items(), calls, strict=False)):
        computed = [sizes.get(id(getattr(block, sublayer))) for sublayer in sublayers]
        rows.append((f"{n}{part_of(name)}", _root_mean_square(x), *computed, sizes[id(block)]))
    pre = blocks[0].pre
    steps = [
        Step(
            "The residual stream, block by block",
            "Root mean square of the features, over all tokens: what enters a block, what each sublayer computes, what"
            " leaves it.",
            "x ← x + attention(norm(x))    x ← x + ffn(norm(x))" if pre else "x ← norm(x + f(x)) for each sublayer",
            [table("root mean squares", ["block", "x", *sublayers, "x after"], rows)],
        ),
    ]
    if isinstance(run.model, Autoregressive) and not example.source:
        log_probs = run.model(example.batch)[0, -1].float().log_softmax(-1)
        best = log_probs.topk(min(5, len(log_probs)))
        predicted = [(run.tokenizer.tokens([int(id)])[0], float(p.exp())) for p, id in zip(*best, strict=True)]
        steps.append(
            Step(
                "What it predicts",
                f"After the last of {len(example.tokens)} tokens, “{visible(example.tokens[-1])}”.",
                "softmax(W_out norm(x) + b)",
                [table("next token", ["token", "probability"], predicted)],
            )
        )
    about = f"A trained Transformer, block by block.{notes_of(example)}"
    return Explanation("transformer", f"Blocks of {run.path}", about, steps)


def _root_mean_square(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def _input_and_output(module: nn.Module, arguments: Any, options: Any, output: Any) -> tuple[Tensor, Tensor]:
    return arguments[0], output


def modules_of(
    run: Run, kinds: type[nn.Module] | tuple[type[nn.Module], ...], words: str, advice: str
) -> dict[str, Any]:
    """The modules of these kinds by name; UserError where the model has none."""
    model = run.model
    named = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    modules = {name: module for name, module in named.items() if isinstance(module, kinds)}
    if not modules:
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which has no {words}; train one: {advice}."
        )
    return modules


def calls_of(run: Run, example: Example, modules: list[Any], value: Any) -> list[list[Any]]:
    """Calls of modules in the forward pass of an example, as `recorded_calls` has them."""
    with recorded_calls(modules, value) as calls:
        run.model(example.batch)
    return calls


def part_of(module: str) -> str:
    """Which half of an encoder-decoder a module is of; "" in other models."""
    if module.startswith(ENCODER):
        return " of the encoder"
    return " of the decoder" if module.startswith("decoder.") else ""
