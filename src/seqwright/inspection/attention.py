"""Attention by layer and head, and what each head does: entropy, distance, previous-token and induction scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.protocols import AttendsSource
from seqwright.inspection.example import Example
from seqwright.inspection.figures import HeadFigure
from seqwright.inspection.forward import forward
from seqwright.inspection.labeled import Heads, check_index
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix

REPEATED = 24
"""Random tokens that are read twice for the induction score."""


def attention_view(subject: Subject) -> ViewResult:
    """Self-attention of every layer and head, cross-attention of encoder-decoders, alignments of recurrent ones."""
    attention, options = subject.forward.attention, subject.options
    figures = [_figure(heads, options.layer, options.head) for heads in attention.kinds.values()]
    step = Step(
        "Attention by layer and head",
        "Each row is a query, the columns are the tokens it attends to; rows sum to one. Layers and heads are counted"
        " from 0. On a page, the opacity of a cell is its weight; beyond 64 columns, the square root of it.",
        "weights = softmax(score(query, key) + mask)",
        figures,
    )
    return ViewResult(step, attention)


def _figure(heads: Heads, layer: int | None, head: int | None) -> HeadFigure:
    if layer is not None:
        check_index("layer", layer, len(heads.layers))
    if head is not None:
        check_index("head", head, len(heads.layers[0]))
    layers = tuple(range(len(heads.layers))) if layer is None else (layer,)
    chosen = tuple(range(len(heads.layers[0]))) if head is None else (head,)
    return HeadFigure(heads, layers, chosen)


def heads_view(subject: Subject) -> ViewResult:
    """Statistics of self-attention heads, layers × heads."""
    heads = subject.forward.attention["self"]
    by_layer = [_statistics(layer) for layer in heads.layers]
    statistics = {name: torch.stack([layer[name] for layer in by_layer]) for name in by_layer[0]}  # (L, H)
    prose = "Means over the rows of the text. Previous token and first token: the weight on them."
    induction = induction_scores(subject)
    if induction is not None:
        statistics["induction"] = induction
        prose += (
            f" Induction: the weight on the token that followed the same token before, in {REPEATED} random tokens read"
            " twice (Olsson et al. 2022)."
        )
    rows = [f"layer {n}" for n in range(len(heads.layers))]
    columns = [f"head {n}" for n in range(len(heads.layers[0]))]
    figures: list[Figure] = [
        matrix(name, values, rows=rows, columns=columns, heat="(" not in name) for name, values in statistics.items()
    ]
    return ViewResult(Step("What each head does", prose, figures=figures), statistics)


def _statistics(weights: Tensor) -> dict[str, Tensor]:
    """Of the heads of a layer, (H,) each; names have the unit, where it is no weight."""
    return {
        "entropy (bits)": entropy(weights),
        "distance (tokens)": distance(weights),
        "previous token": _diagonal(weights, 1),
        "first token": weights[..., 1:, 0].mean(-1) if weights.size(-2) > 1 else weights[..., 0, 0],
    }


def entropy(weights: Tensor) -> Tensor:
    """Entropy in bits of the rows of weights (…, T, K), averaged over rows."""
    return -(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean(-1)


def distance(weights: Tensor) -> Tensor:
    """Mean distance in tokens between a query and what it attends to."""
    rows, columns = weights.shape[-2:]
    offsets = (torch.arange(rows).unsqueeze(1) - torch.arange(columns)).abs().to(weights)
    return (weights * offsets).sum(-1).mean(-1)


def _diagonal(weights: Tensor, back: int) -> Tensor:
    """Mean weight on the token `back` positions before; 0 in texts that are too short."""
    diagonal = weights.diagonal(-back, -2, -1)
    return diagonal.mean(-1) if diagonal.size(-1) else weights.new_zeros(weights.shape[:-2])


def induction_scores(subject: Subject) -> Tensor | None:
    """(L, H): attention of repeated random tokens to what followed their first occurrence; None for models that have a
    source or a short context."""
    run = subject.run
    context = run.model.context or math.inf
    count = int(min(REPEATED, (context - 1) // 2))
    if subject.forward.log_probs is None or (isinstance(run.model, AttendsSource) and subject.example.source):
        return None
    if count < 2:
        return None
    once = run.example(1, count).input[:, 1:]
    count = once.size(1)
    input = torch.cat([run.example(1, 1).input, once, once], 1).to(run.device)
    batch = Batch.of_text(input, torch.full_like(input, IGNORE))
    names = tuple(map(str, range(input.size(1))))
    weights = forward(run, Example(text="", batch=batch, tokens=names, targets=names)).attention["self"].layers
    # Position 1 + count + i holds the token of position 1 + i, which was followed by position 2 + i: count - 1 back.
    return torch.stack([layer[:, 1 + count :].diagonal(2, -2, -1).mean(-1) for layer in weights])
