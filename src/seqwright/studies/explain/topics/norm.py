"""LayerNorm and RMSNorm (worked example 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from seqwright.layers.transformer_block import BlockConfig, normalization
from seqwright.runs.run import Run
from seqwright.studies.explain.explanation import Explanation, Step
from seqwright.studies.explain.figures import matrix
from seqwright.studies.explain.options import TopicOptions, Vector
from seqwright.studies.explain.topics.of_run import norm_of_run


@dataclass(frozen=True, kw_only=True)
class LayerNormOptions(TopicOptions):
    x: Vector = (1.0, 2.0, 3.0, 4.0)
    """A vector of the residual stream."""
    gain: float = 1.0
    """Learned scale γ, the same for all features here."""
    shift: float = 0.0
    """Learned shift β."""
    epsilon: float = 1e-5
    """Added to the variance."""
    text: str = ""
    """Text that a run is shown on."""
    layer: int = 0
    """Normalization of a run, from 0, in the order of its modules."""

    resizable: ClassVar[tuple[str, ...]] = ("x",)
    run_only: ClassVar[tuple[str, ...]] = ("layer",)


def layer_norm(options: LayerNormOptions, run: Run | None = None) -> Explanation:
    """LayerNorm of one vector, then RMSNorm of the same; or a normalization of a run."""
    if run is not None:
        return norm_of_run(options.text, options.layer, run)
    x = torch.tensor(options.x, dtype=torch.float64)
    normed, rms = _normalized(options, x, "layernorm"), _normalized(options, x, "rmsnorm")
    steps = [
        Step(
            "Mean and standard deviation of the features",
            "Over the features of one position: other tokens and other texts of the batch do not matter. σ is that of a"
            " population (divided by D, not by D - 1).",
            "μ = Σ x / D    σ = √(Σ (x - μ)² / D)",
            [matrix("x", x), matrix("μ", float(x.mean())), matrix("σ", float(x.std(correction=0)))],
        ),
        Step(
            "LayerNorm",
            "Mean 0 and variance 1, then a learned gain and shift for each feature.",
            "y = γ (x - μ) / √(σ² + ε) + β",
            [
                matrix("y", normed),
                matrix("mean of y", float(normed.mean())),
                matrix("variance of y", float(normed.var(correction=0))),
            ],
            ["a row that a slide calls LayerNorm output has no zero mean: it cannot be one, unless β shifts it."],
        ),
        Step(
            "RMSNorm",
            "Divides by the root mean square and subtracts nothing; Llama uses it (Zhang & Sennrich 2019).",
            "y = γ x / √(Σ x² / D + ε)",
            [matrix("y of RMSNorm", rms)],
        ),
    ]
    about = "Normalization keeps the residual stream in a range where training is stable (Ba et al. 2016)."
    return Explanation("layer-norm", "Layer normalization", about, steps)


@torch.no_grad()
def _normalized(options: LayerNormOptions, x: Tensor, kind: Literal["layernorm", "rmsnorm"]) -> Tensor:
    norm = normalization(BlockConfig(width=len(x), heads=1, norm=kind, norm_eps=options.epsilon)).double()
    norm.get_parameter("weight").fill_(options.gain)
    if kind == "layernorm":
        norm.get_parameter("bias").fill_(options.shift)
    return norm(x)
