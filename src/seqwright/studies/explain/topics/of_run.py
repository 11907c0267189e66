"""What the layers of a trained language model compute on a text: Elman states, heads, normalizations, blocks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.layers.attention import SelfAttention
from seqwright.layers.elman import Elman
from seqwright.layers.recording import attention_weights, recorded_calls
from seqwright.layers.transformer_block import Block
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import Figure, matrix, table
from seqwright.studies.explain.text import run_ids

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


@torch.no_grad()
def elman_of_run(text: str, unit: int, run: Run) -> Explanation:
    """One unit of a run's first Elman layer, token by token: what the input and the state before add up to."""
    ids, tokens = run_ids(run, text)
    network = _all(run, (nn.RNN, Elman), "Elman network", "--model rnn")[0]
    width = network.weight_hh_l0.size(0)
    if not 0 <= unit < width:
        raise UserError(f"no unit {unit}: units go from 0 to {width - 1}.")
    [[(inputs, outputs)]] = _calls(run, ids, [network], lambda _, given, options, output: (given[0], output[0]))
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
            f"Layer 0 of {width} units; --set unit=N.",
            "h_t = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)",
            figures,
        ),
        Step("All units", "Near 1 for tanh, units are saturated, and little gradient passes.", figures=means),
    ]
    return Explanation("rnn", f"Elman network of {run.path}", "Hidden states of a trained network.", steps)


@torch.no_grad()
def heads_of_run(text: str, layer: int, run: Run) -> Explanation:
    """The heads of a layer of a run: shapes, weights, and what each reads."""
    ids, tokens = run_ids(run, text)
    layers = _all(run, SelfAttention, "attention", "--model gpt")
    if not 0 <= layer < len(layers):
        raise UserError(f"no layer {layer}: layers go from 0 to {len(layers) - 1}.")
    part = layers[layer]
    [[(weights, heads)]] = _calls(run, ids, [part.attend], lambda *call: (attention_weights(*call), call[-1]))
    weights, heads = weights[0].cpu(), heads[0].cpu()  # (H, T, T), (H, T, E)
    entropy = -(weights * weights.clamp(min=1e-12).log()).sum(-1).mean(-1)
    rows = [
        (head, float(entropy[head]), tokens[int(weights[head, -1].argmax())], float(weights[head, -1].max()))
        for head in range(len(weights))
    ]
    width = part.output.in_features
    steps = [
        Step(
            "One projection, split into heads",
            f"Layer {layer}: width {width} is split into {part.heads} heads of size {width // part.heads}"
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
    return Explanation("multi-head", f"Heads of {run.path}", "Attention of a trained model; --set layer=N.", steps)


@torch.no_grad()
def norm_of_run(text: str, layer: int, run: Run) -> Explanation:
    """A normalization of a run: mean and deviation of each token's features before and after."""
    ids, tokens = run_ids(run, text)
    layers = _all(run, (nn.LayerNorm, nn.RMSNorm), "normalization", "--model gpt")
    heads = [norm for part in _model(run).modules() if isinstance(part, SelfAttention) for norm in part.children()]
    layers = [
        norm for norm in layers if all(norm is not of_head for of_head in heads)
    ]  # those of QK-norm have H vectors
    if not 0 <= layer < len(layers):
        raise UserError(f"no normalization {layer}: they go from 0 to {len(layers) - 1}.")
    norm: Any = layers[layer]
    name = next(name for name, module in _model(run).named_modules() if module is norm)
    [[(x, y)]] = _calls(run, ids, [norm], _input_and_output)
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
    return Explanation("layer-norm", f"Normalization of {run.path}", "A normalization of a trained model.", steps)


@torch.no_grad()
def blocks_of_run(text: str, run: Run) -> Explanation:
    """The blocks of a run: what attention and feed-forward network add to the residual stream, and what it predicts."""
    ids, tokens = run_ids(run, text)
    blocks = _all(run, Block, "Transformer block", "--model gpt")
    parts = [part for block in blocks for part in (block.attention, block.feed_forward)]
    streams, added = (_calls(run, ids, modules, _input_and_output) for modules in (blocks, parts))
    rows = []
    for n, [(x, after)] in enumerate(streams):
        attended, fed = (added[2 * n + k][0][1] for k in range(2))
        rows.append((n, *(_root_mean_square(values) for values in (x, attended, fed, after))))
    log_probs = _model(run)(_batch(run, ids))[0, -1].float().log_softmax(-1)
    best = log_probs.topk(min(5, len(log_probs)))
    predicted = [(run.tokenizer.tokens([int(id)])[0], float(p.exp())) for p, id in zip(*best, strict=True)]
    pre = blocks[0].pre
    steps = [
        Step(
            "The residual stream, block by block",
            "Root mean square of the features, over all tokens: what enters a block, what attention and the"
            " feed-forward network compute, what leaves it.",
            "x ← x + attention(norm(x))    x ← x + ffn(norm(x))" if pre else "x ← norm(x + f(x)) for both sublayers",
            [table("root mean squares", ["block", "x", "attention", "feed-forward", "x after"], rows)],
        ),
        Step(
            "What it predicts",
            f"After the last of {len(tokens)} tokens, {tokens[-1]!r}.",
            "softmax(W_out norm(x) + b)",
            [table("next token", ["token", "probability"], predicted)],
        ),
    ]
    return Explanation("transformer", f"Blocks of {run.path}", "A trained Transformer, block by block.", steps)


def _root_mean_square(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def _input_and_output(module: nn.Module, arguments: Any, options: Any, output: Any) -> tuple[Tensor, Tensor]:
    return arguments[0], output


def _batch(run: Run, ids: list[int]) -> Batch:
    input = torch.tensor([ids], device=run.device)
    return Batch.of_text(input, input)


def _model(run: Run) -> Any:
    return run.model if isinstance(run.model, nn.Module) else nn.Module()


def _calls(run: Run, ids: list[int], modules: list[Any], value: Any) -> list[list[Any]]:
    """Calls of modules in the forward pass of a text, as `recorded_calls` has them."""
    with recorded_calls(modules, value) as calls:
        _model(run)(_batch(run, ids))
    return calls


def _all(run: Run, kinds: type[nn.Module] | tuple[type[nn.Module], ...], words: str, advice: str) -> list[Any]:
    """The modules of these kinds; UserError where the model has none."""
    found = [module for module in _model(run).modules() if isinstance(module, kinds)]
    if not found:
        raise UserError(
            f"{run.path} holds a model of kind '{run.settings.kind}', which has no {words}; train one: {advice}."
        )
    return found
