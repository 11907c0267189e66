"""Attention by layer and head."""

from __future__ import annotations

from dataclasses import replace

from seqwright.inspection.figures import HeadFigure
from seqwright.inspection.forward import forward
from seqwright.inspection.labeled import Heads, check_index
from seqwright.inspection.subject import Subject, ViewResult
from seqwright.studies.explain.explanation import Step


def attention_view(subject: Subject) -> ViewResult:
    """Self-attention of every layer and head, cross-attention of encoder-decoders, alignments of recurrent ones."""
    attention, options = subject.forward.attention, subject.options
    figures = [_figure(heads, options.layer, options.head) for heads in attention.kinds.values()]
    if subject.beside is not None:  # beside each other, with one choice of layer and head for both
        others = forward(subject.run, subject.beside).attention
        figures = [
            each
            for figure in figures
            for each in (
                replace(figure, label="first text"),
                replace(figure, heads=others[figure.heads.kind], label="second text"),
            )
        ]
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
