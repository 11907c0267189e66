"""Attention by layer and head."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from seqwright.inspection.figures import HeadFigure
from seqwright.inspection.forward import forward
from seqwright.inspection.labeled import Attention, Heads, check_index
from seqwright.inspection.subject import Options, Subject, ViewResult
from seqwright.studies.explain.explanation import Step


def attention_view(subject: Subject) -> ViewResult:
    """Self-attention of every layer and head, cross-attention of encoder-decoders, alignments of recurrent ones."""
    attention, options = subject.forward.attention, subject.options
    kinds = attention.kinds.values()
    inside = [heads for heads in kinds if options.has_rows(len(heads.rows), heads.first)]
    figures = [_figure(heads, options) for heads in inside or kinds]
    if subject.beside is not None:  # beside each other, with one choice of layer and head for both
        others = forward(subject.run, subject.beside).attention
        figures = [
            each
            for figure in figures
            for each in (
                replace(figure, label="first text"),
                replace(_figure(others[figure.heads.kind], options), label="second text"),
            )
        ]
    step = Step(
        "Attention by layer and head",
        "Each row is a query, the columns are the tokens it attends to; rows sum to one. Layers and heads are counted"
        f" from 0.{_row_names(attention)}",
        "weights = softmax(score(query, key) + mask)",
        figures,
    )
    return ViewResult(step, attention)


def _row_names(attention: Attention) -> str:
    """What the rows of a decoder are named for, where it attends to a source."""
    if "cross" not in attention.kinds:
        return ""
    names = " A row of cross-attention is named for the token that is predicted there"
    if "self" not in attention.kinds:
        return f"{names}."
    return f"{names}, a row of self-attention for the token that is read: rows n and n - 1 are of one position."


def _figure(heads: Heads, options: Options) -> HeadFigure:
    layers, chosen = selection(heads, options)
    shown = options.shown(len(heads.rows), heads.first)
    if options.span is not None:
        heads = replace(heads, layers=[layer[:, shown] for layer in heads.layers], rows=heads.rows[shown])
    return HeadFigure(heads, layers, chosen, first=heads.first + shown.start)


def selection(heads: Heads, options: Options) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The layers and heads that are shown."""
    if options.layer is not None:
        check_index("layer", options.layer, len(heads.layers))
    if options.head is not None:
        check_index("head", options.head, len(heads.layers[0]))
    layers = tuple(range(len(heads.layers))) if options.layer is None else (options.layer,)
    return layers, tuple(range(len(heads.layers[0]))) if options.head is None else (options.head,)


def selected(heads: Heads, options: Options) -> list[Tensor]:
    """The weights (H, T, K) of the layers and heads that are shown."""
    layers, chosen = selection(heads, options)
    return [heads.layers[layer][list(chosen)] for layer in layers]
