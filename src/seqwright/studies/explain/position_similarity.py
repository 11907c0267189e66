"""Positional similarity: how alike a model's encodings of two positions are, or what it adds for their distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqwright.layers.attention_bias import ALiBi, RelativePositionBias
from seqwright.layers.positions import Learned, Rotary, Sinusoidal
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix, table
from seqwright.studies.explain.heat_map import heat_map

POSITIONS = 48
"""Positions that are shown, the first ones."""
DISTANCES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 47)


def position_module(model: Any) -> nn.Module | None:
    """The first module of a model that encodes positions."""
    kinds = (Sinusoidal, Learned, Rotary, ALiBi, RelativePositionBias)
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return next((module for module in modules if isinstance(module, kinds)), None)


def similarity_step(module: nn.Module, context: int | None) -> tuple[Step, Tensor]:
    """Cosines of absolute encodings; the mean cosine of rotations (RoPE); biases by head (ALiBi, T5): of the first
    positions, as prose and figures and as a tensor."""
    count = min(POSITIONS, context or POSITIONS)
    if isinstance(module, ALiBi | RelativePositionBias):
        return _by_distance(_biases(module, count))
    if isinstance(module, Rotary):
        similarity, formula = rotary_similarity(module, count), "mean over pairs i of cos((m - n) θ_i)"
        what = "Queries and keys are rotated by angles that grow with their position: the dot product of two equal"
        what += " vectors is multiplied by this, if their pairs have equal norms (else pairs weigh by their squares)."
    else:
        similarity, formula = encoding_similarity(module, count), "cos(e_m, e_n) = e_m · e_n / (|e_m| |e_n|)"
        what = "Cosines between the vectors that are added to the embeddings of two positions."
    rows = [(d, float(similarity.diagonal(d).mean())) for d in DISTANCES if d < count]
    figures: list[Figure] = [
        table("similarity by distance", ("distance", "mean"), rows),
        heat_map("similarity of positions", similarity, ("position", "position")),
    ]
    name = type(module).__name__.lower()
    return Step(f"Positional similarity ({name})", what, formula, figures), similarity


def encoding_similarity(module: nn.Module, count: int) -> Tensor:
    """(N, N): cosines of the encodings of positions."""
    vectors = module.table.weight if isinstance(module, Learned) else module.get_buffer("table")  # (context, D)
    unit = nn.functional.normalize(vectors[:count].detach().float().cpu(), dim=-1)
    return unit @ unit.T


def rotary_similarity(module: Rotary, count: int) -> Tensor:
    """(N, N): the factor by which rotations to two positions change the dot product of equal vectors, on average."""
    cos, sin = (module.get_buffer(name)[:count].float().cpu() for name in ("cos", "sin"))  # (N, E / 2)
    return (cos @ cos.T + sin @ sin.T) / cos.size(1)


@torch.no_grad()
def _biases(module: ALiBi | RelativePositionBias, count: int) -> Tensor:
    """(H, N, N) of the first positions."""
    weight = next(iter((*module.buffers(), *module.parameters())))
    positions = torch.arange(count, device=weight.device)
    biases: Tensor = module(positions.unsqueeze(0), positions)
    return biases[0].float().cpu()


def _by_distance(biases: Tensor) -> tuple[Step, Tensor]:
    """Biases (H, N, N) as a table of distances × heads: they depend on nothing else."""
    distances = [d for d in DISTANCES if d < biases.size(-1)]
    values = torch.stack([biases[:, -1, biases.size(-1) - 1 - d] for d in distances])  # (distances, H)
    step = Step(
        "Positional bias by distance",
        "What is added to the attention score of a key that many tokens before the query, for each head.",
        "score(q, k) + bias(distance)",
        [
            matrix(
                "bias",
                values,
                rows=[f"distance {d}" for d in distances],
                columns=[f"head {n}" for n in range(values.size(1))],
            )
        ],
    )
    return step, biases
