"""What each attention head does: entropy, distance, previous-token, first-token and induction scores."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from seqwright.core.batch import IGNORE, Batch
from seqwright.core.protocols import AttendsSource
from seqwright.inspection.forward import forward
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step
from seqwright.studies.explain.figures import Figure, matrix
from seqwright.tasks.example import Example, file_examples

REPEATED = 24
"""Random tokens that are read twice for the induction score; fewer where the context is short."""
MAX_TOKENS = 100_000
"""Tokens of a file that are read."""


def heads_view(subject: Subject) -> ViewResult:
    """Statistics of self-attention heads, layers × heads: of the text, or of a file window by window."""
    run, on = subject.run, subject.options.on
    if on is None:
        statistics, tokens = head_statistics([subject.forward.attention["self"].layers])
        where = "the text"
    else:
        examples = file_examples(run, on)
        statistics, tokens = head_statistics(forward(run, one).attention["self"].layers for one in examples)
        where = f"the first {tokens:,} tokens of {on}" if tokens >= MAX_TOKENS else f"the {tokens:,} tokens of {on}"
    prose = f"Means over {where}. Previous token and first token: the weight on them."
    induction = induction_scores(subject)
    if induction is not None:
        statistics["induction"] = induction
        prose += (
            " Induction: the weight on the token that followed the same token before, in random tokens read twice"
            " (Olsson et al. 2022)."
        )
    layers, heads = next(iter(statistics.values())).shape
    rows, columns = [f"layer {n}" for n in range(layers)], [f"head {n}" for n in range(heads)]
    figures: list[Figure] = [
        matrix(name, values, rows=rows, columns=columns, heat="(" not in name) for name, values in statistics.items()
    ]
    return ViewResult(Step("What each head does", prose, figures=figures), statistics)


def head_statistics(passes: Iterable[Iterable[Tensor]]) -> tuple[dict[str, Tensor], int]:
    """Means (L, H) over the tokens of forward passes, each the weights (H, T, K) of every layer, and the number of
    tokens; one pass at a time is in memory."""
    sums: dict[str, Tensor] = {}
    tokens = 0
    for layers in passes:
        by_layer = [_statistics(layer) for layer in layers]
        count = by_layer[0][1]
        for name in by_layer[0][0]:
            values = count * torch.stack([statistics[name] for statistics, _ in by_layer])  # (L, H)
            sums[name] = sums[name] + values if name in sums else values
        tokens += count
        if tokens >= MAX_TOKENS:
            break
    return {name: values / tokens for name, values in sums.items()}, tokens


def _statistics(weights: Tensor) -> tuple[dict[str, Tensor], int]:
    """Of the heads of a layer, (H,) each, and the number of tokens; names have the unit, where it is no weight."""
    statistics = {
        "entropy (bits)": entropy(weights),
        "distance (tokens)": distance(weights),
        "previous token": _diagonal(weights, 1),
        "first token": weights[..., 1:, 0].mean(-1) if weights.size(-2) > 1 else weights[..., 0, 0],
    }
    return statistics, weights.size(-2)


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
