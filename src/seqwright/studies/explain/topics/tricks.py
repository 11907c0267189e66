"""What scaled scores, residuals, normalization and positions are for: shipped Transformer layers with and without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seqwright import build
from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.layers.attention import Attend
from seqwright.studies.explain.charts import Chart
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix, table
from seqwright.studies.explain.options import TopicOptions
from seqwright.studies.explain.recording import recorded

HEAD_SIZES = (4, 16, 64, 256)
KEYS, QUERIES = 8, 64


@dataclass(frozen=True, kw_only=True)
class TricksOptions(TopicOptions):
    layers: int = 12
    """Blocks of the stack."""
    width: int = 16
    length: int = 6
    """Tokens of the input."""
    weight: float = 2.0
    """Size of the weights."""

    def __post_init__(self) -> None:
        if not (1 <= self.layers <= 48 and 4 <= self.width <= 128 and self.width % 4 == 0 and 3 <= self.length <= 32):
            raise UserError("layers are 1 to 48, width 4 to 128 in fours, length 3 to 32.")
        if not 0 < self.weight <= 10:
            raise UserError("weight is above 0 and at most 10.")


def tricks(options: TricksOptions) -> Explanation:
    """The four tricks, each switched off by its recipe key."""
    x = torch.sin(3 * torch.arange(options.length * options.width, dtype=torch.float64))
    x = x.view(1, options.length, options.width)
    depth = tuple(float(n) for n in range(1, options.layers + 1))
    switches = {"with": {}, "without": {"residual": False}}
    gradients = {f"{name} residuals": _gradients(options, x, **keys) for name, keys in switches.items()}
    norms = {
        "with normalization": _sizes(options, x),
        "without": _sizes(options, x, norm="none"),
    }
    swapped = x[:, [1, 0, *range(2, options.length)]]
    changes = [
        (name, float((_output(options, x, *stack) - _output(options, swapped, *stack)).abs().max()))
        for name, stack in {
            "none": (1, "none"),
            f"none, stack of {options.layers}": (options.layers, "none"),
            "sinusoidal": (1, "sinusoidal"),
            "rope": (1, "rope"),
        }.items()
    ]
    steps = [
        Step(
            "Scaled scores",
            "The dot product of two vectors of d entries of size 1 has a standard deviation of √d. Unscaled, the"
            " softmax of large heads puts all weight on one key, and its gradient vanishes; divided by √d it stays"
            " soft.",
            "softmax(q kᵀ / √d)    model.scale_attention = false leaves √d out",
            [
                table(
                    f"largest of {KEYS} attention weights, mean of {QUERIES} queries",
                    ["d", "deviation of q · k", "unscaled", "scaled"],
                    [_scaling(size) for size in HEAD_SIZES],
                )
            ],
        ),
        Step(
            "Residual connections",
            "A residual adds 1 to the derivative of every layer, so that the gradient reaches the first block of a deep"
            " stack whatever the weights do (He et al. 2016). Without it, it is a product of one factor for each"
            " layer.",
            "x + f(x)    ∂/∂x = 1 + f'(x)    model.residual = false leaves x out",
            [
                Chart("∂L/∂x by depth", "blocks", depth, gradients, log=True),
                table(
                    "gradient at the input",
                    ["stack", "1 block", f"{options.layers} blocks"],
                    [(name, *(f"{norm:.2e}" for norm in (line[0], line[-1]))) for name, line in gradients.items()],
                ),
            ],
        ),
        Step(
            "Normalization",
            "Every block adds to the residual stream. A norm before each sublayer keeps what it reads at size 1, so"
            " that blocks add about equally much; without norms they multiply what is there (Ba et al. 2016; Xiong et"
            " al. 2020).",
            "x + f(norm(x))    model.norm = none leaves the norm out",
            [Chart("size of the residual stream by depth", "blocks", depth, norms, log=True)],
        ),
        Step(
            "Positions",
            "Attention is a weighted sum, and a sum has no order: exchange the first two tokens, and in one layer"
            " without positions the last output stays the same. A deeper causal stack knows some order from its mask:"
            " the first token sees less than the second. Rows of the table are of one layer, but that of the stack.",
            "model.positions = none",
            [
                table("change of the last output", ["positions", "largest change"], changes),
                matrix("change without positions", changes[0][1]),
            ],
        ),
    ]
    about = (
        "Four parts of a Transformer that no formula of attention needs, each switched off by one key of [model]. The"
        " recipe `lecture-tricks` trains with and without: its first lines have the perplexities."
    )
    return Explanation("tricks", "What makes a Transformer train", about, steps)


def _scaling(size: int) -> tuple[int, float, float, float]:
    """Deviation of dot products of vectors with entries of size 1, and the largest weight with and without scaling."""
    angles = torch.arange((KEYS + QUERIES) * size, dtype=torch.float64)
    vectors = (2**0.5 * torch.sin(angles**1.5)).view(1, 1, KEYS + QUERIES, size)
    query, keys = vectors[:, :, KEYS:], vectors[:, :, :KEYS]
    unscaled, scaled = (Attend(scaled=scaled).weights(query, keys).amax(-1).mean() for scaled in (False, True))
    return size, float((query @ keys.transpose(-2, -1)).std()), float(unscaled), float(scaled)


def _stack(options: TricksOptions, layers: int, **keys: Any) -> Any:
    """The encoder of a shipped GPT; weights are values of sin n, all of one size."""
    sizes = {"kind": "gpt", "width": options.width, "heads": 2, "layers": layers, "context": options.length}
    config = build.model_config({"positions": "none"} | sizes | keys)
    encoder = build.model(config, Vocabulary(size=3)).double().encoder
    with torch.no_grad():
        for n, parameter in enumerate(encoder.parameters(), 1):
            if parameter.dim() == 2:
                values = torch.sin(3 * torch.arange(parameter.numel(), dtype=torch.float64) + n)
                parameter.copy_(options.weight * values.view_as(parameter) / parameter.size(1) ** 0.5)
    return encoder


def _output(options: TricksOptions, x: Tensor, layers: int, positions: str) -> Tensor:
    soft = replace(options, weight=options.weight / 4)  # so that more than one token has attention weight
    with torch.no_grad():
        return _stack(soft, layers, positions=positions)(x)[0][0, -1]


def _gradients(options: TricksOptions, x: Tensor, **keys: Any) -> list[float]:
    """‖∂L/∂x‖ of a projection of the last output, for stacks of 1, 2, … blocks."""
    direction = torch.cos(torch.arange(options.width, dtype=torch.float64))
    norms = []
    for layers in range(1, options.layers + 1):
        inputs = x.clone().requires_grad_()
        (_stack(options, layers, **keys)(inputs)[0][0, -1] @ direction).backward()
        assert inputs.grad is not None
        norms.append(float(inputs.grad.norm()))
    return norms


def _sizes(options: TricksOptions, x: Tensor, **keys: Any) -> list[float]:
    """Root mean square of the residual stream after each block."""
    encoder = _stack(options, options.layers, **keys)
    with torch.no_grad(), recorded(encoder) as record:
        encoder(x)
    return [float(record.outputs[f"blocks.{n}"].square().mean().sqrt()) for n in range(options.layers)]
