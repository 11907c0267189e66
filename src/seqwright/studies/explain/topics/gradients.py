"""Vanishing gradients: how much of a loss reaches a token that lies far back, in an RNN, LSTM, GRU and attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqwright import build
from seqwright.core.batch import Batch, Vocabulary
from seqwright.core.config import UserError
from seqwright.runs.run import Run
from seqwright.studies.explain.charts import Chart
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table, visible
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.text import run_ids
from seqwright.studies.explain.topics.of_run import modules_of

KINDS = {"rnn": "Elman RNN", "lstm": "LSTM", "gru": "GRU", "gpt": "attention"}
FORGET = 1
"""Index of the forget gate among i f g o."""
UPDATE = 1
"""Index of the update gate among r z n."""
SIZE = 0.1
"""Of weights: small enough that gates and tanh are not saturated."""
MAX_TOKENS = 64
"""Tokens of a text that a run is shown on."""


@dataclass(frozen=True, kw_only=True)
class GradientsOptions(TopicOptions):
    length: int = 32
    """Tokens of the input."""
    width: int = 16
    """Hidden size."""
    gain: float = 0.9
    """Size of the recurrent weights of the RNN: W_hh is the gain times a rotation."""
    forget_bias: float = 3.0
    """Bias of the LSTM's forget gate."""
    update_bias: float = 3.0
    """Bias of the GRU's update gate."""
    text: str = ""
    """Text that a run is shown on."""

    def __post_init__(self) -> None:
        if not (4 <= self.length <= 128 and 4 <= self.width <= 64 and self.width % 4 == 0):
            raise UserError("length is 4 to 128, width 4 to 64 in fours.")
        if not (0 <= self.gain <= 3 and max(abs(self.forget_bias), abs(self.update_bias)) <= 10):
            raise UserError("gain is 0 to 3, forget_bias and update_bias -10 to 10.")


def gradients(options: GradientsOptions, run: Run | None = None) -> Explanation:
    """∂L/∂x by distance for shipped encoders with the same input; or for a trained language model."""
    if run is not None:
        return _of_run(options.text, run)
    norms = {title: _norms(kind, options) for kind, title in KINDS.items()}
    distances = tuple(float(n) for n in range(1, options.length))
    shown = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < options.length]
    rnn = torch.tensor(norms["Elman RNN"], dtype=torch.float64)  # products of many factors leave float32
    ratios = rnn[1:] / rnn[:-1].clamp(min=1e-300)
    steps = [
        Step(
            "A loss at the last token",
            "The loss is a projection of the last hidden state. Its gradient with respect to the input of each token"
            " says how much that token could still change it, and so how much can be learned from it.",
            "g(d) = ‖∂L / ∂x_(T-d)‖ / ‖∂L / ∂x_(T-1)‖    L = u · h_T",
            [table("g", ["distance", *KINDS.values()], [(n, *(norms[k][n - 1] for k in norms)) for n in shown])],
        ),
        Step(
            "The RNN multiplies",
            "Each step back multiplies by W_hhᵀ and by the slope of tanh, which is at most 1. Where the product is"
            " below 1, the gradient vanishes exponentially; above 1 it explodes, until tanh saturates (set gain=1.5).",
            "∂h_t / ∂h_(t-1) = diag(1 - h_t²) W_hh    ‖W_hh‖ = gain",
            [
                matrix("gain", options.gain),
                matrix("mean factor per step back", float(ratios.log().mean().exp())),
                Chart("g by distance", "distance", distances, norms, log=True),
            ],
        ),
        Step(
            "LSTM and GRU add",
            "The cell of an LSTM is carried on by the forget gate alone, the hidden state of a GRU by its update gate:"
            " a gate near 1 keeps the gradient, whatever the weights (Hochreiter & Schmidhuber 1997; Gers et al. 2000;"
            " Cho et al. 2014). Set forget_bias=0 or update_bias=0 and see it vanish, too.",
            "LSTM: c_t = f_t c_(t-1) + …    GRU: h_t = z_t h_(t-1) + …    gates begin at σ(bias)",
            [
                matrix("σ(forget_bias)", float(torch.tensor(options.forget_bias).sigmoid())),
                matrix("σ(update_bias)", float(torch.tensor(options.update_bias).sigmoid())),
            ],
        ),
        Step(
            "Attention reaches every token in one step",
            "The path from the last token to any other is one weighted sum long. Gradients differ by attention weight,"
            " not by distance.",
            "h_T = Σ_t a_t v_t",
            [
                matrix("g of the first token, attention", norms["attention"][-1]),
                matrix("g of the first token, RNN", norms["Elman RNN"][-1]),
            ],
        ),
    ]
    about = (
        "Why recurrent networks forget: gradients through time are products. The shipped encoders read the same"
        f" {options.length} vectors; weights are values of sin n, so that the page reads the same everywhere."
    )
    return Explanation("gradients", "Vanishing gradients", about, steps)


def _norms(kind: str, options: GradientsOptions) -> list[float]:
    """Gradient norms by distance from 1, relative to the first of them: the last token also has its residual path."""
    sizes = {"layers": 1, "heads": 2, "context": options.length, "positions": "none"} if kind == "gpt" else {}
    config = build.model_config({"kind": kind, "width": options.width} | sizes)
    encoder = build.model(config, Vocabulary(size=3)).double().encoder
    _set_weights(encoder, options)
    angles = torch.arange(options.length * options.width, dtype=torch.float64)
    x = torch.sin(3 * angles).view(1, options.length, options.width).requires_grad_()
    hidden, _ = encoder(x)
    (hidden[0, -1] @ torch.cos(torch.arange(options.width, dtype=torch.float64))).backward()
    assert x.grad is not None
    norms = x.grad[0, :-1].norm(dim=-1).flip(0)
    return (norms / norms[0].clamp(min=1e-300)).tolist()


@torch.no_grad()
def _set_weights(encoder: nn.Module, options: GradientsOptions) -> None:
    """Small weights by formula; the RNN's recurrent matrix is a rotation times the gain, biases are 0."""
    for n, (name, parameter) in enumerate(encoder.named_parameters(), 1):
        if parameter.dim() == 1:
            parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            continue
        values = torch.sin(3 * torch.arange(parameter.numel(), dtype=torch.float64) + n)
        parameter.copy_(SIZE * values.view_as(parameter))
    for network in encoder.children():
        if isinstance(network, nn.RNN):
            network.get_parameter("weight_hh_l0").copy_(options.gain * _rotation(options.width))
        if isinstance(network, nn.LSTM):
            network.get_parameter("bias_ih_l0").view(4, -1)[FORGET] = options.forget_bias
        if isinstance(network, nn.GRU):
            network.get_parameter("bias_ih_l0").view(3, -1)[UPDATE] = options.update_bias


def _rotation(width: int) -> Tensor:
    """An orthogonal matrix: features rotated in pairs (i, i + D/2) by different angles."""
    angles = torch.arange(1, width // 2 + 1, dtype=torch.float64)
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])


def _of_run(text: str, run: Run) -> Explanation:
    """Gradient of the log-probability of the last token with respect to the embedding of each token before it."""
    ids, tokens = run_ids(run, text, limit=MAX_TOKENS)
    if len(ids) < 3:
        raise UserError("a gradient by distance needs two tokens or more; give more words: --on 'a few words'.")
    embedding = next(iter(modules_of(run, nn.Embedding, "embedding, and no gradients", "--model lstm").values()))
    embedded: list[Tensor] = []

    def leaf(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1]

    handle = embedding.register_forward_hook(leaf)
    try:
        # cuDNN's recurrent networks have no backward pass in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            input = torch.tensor([ids[:-1]], device=run.device)
            log_probs = run.model(Batch.of_text(input, input))[0, -1].log_softmax(-1)
            (gradient,) = torch.autograd.grad(log_probs[ids[-1]], embedded[0])
    finally:
        handle.remove()
    norms = gradient[0].float().norm(dim=-1).flip(0).cpu()  # by distance, from 1
    relative = (norms / norms.max().clamp(min=1e-30)).tolist()
    rows = [(n, token, norm) for n, (token, norm) in enumerate(zip(reversed(tokens[:-1]), relative, strict=True), 1)]
    distances = tuple(float(n) for n in range(1, len(relative) + 1))
    steps = [
        Step(
            "What reaches each token",
            f"The loss is that of “{visible(tokens[-1])}”, the last of {len(tokens)} tokens. Its gradient with respect"
            " to the embedding of a token before it, relative to the greatest, is how much that token could change"
            " the prediction.",
            "g(d) = ‖∂ log p(x_T) / ∂e_(T-d)‖ / max",
            [
                table("g", ["distance", "token", "g"], rows),
                Chart("g by distance", "distance", distances, {run.settings.kind: relative}, log=True),
            ],
        )
    ]
    return Explanation("gradients", f"Gradients of {run.path}", "How far back a trained model is sensitive.", steps)
