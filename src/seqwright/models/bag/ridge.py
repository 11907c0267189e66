"""One-vs-rest ridge regression on TF-IDF features, in its dual form: as many unknowns as texts.

Features are weighted by inverse document frequency rather than by naive Bayes; for few texts, any number of classes
takes one linear system (Rifkin & Klautau 2004).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import CSRMatrix

MAX_DENSE = 10_000_000
"""Entries of the feature matrix made dense at a time."""


def inverse_document_frequency(x: CSRMatrix) -> Tensor:
    """(F,): smoothed IDF, log((1 + N) / (1 + df)) + 1 as in scikit-learn."""
    return ((1 + len(x)) / (1 + torch.bincount(x.columns, minlength=x.width))).log() + 1


def gram_matrix(x: CSRMatrix, y: CSRMatrix, scale: Tensor) -> Tensor:
    """(N, M): dot products of the rows of x and y, with columns scaled by (F,); of x with itself, each is computed
    once."""
    gram = torch.zeros(len(x), len(y))
    for rows in torch.arange(len(y)).tensor_split(1 + len(y) * y.width // MAX_DENSE):
        chunk, first = y.select(rows), int(rows[0]) if x is y else 0
        row_of = torch.repeat_interleave(torch.arange(len(chunk)), chunk.indptr.diff())
        values = scale.square()[chunk.columns] * (1.0 if chunk.values is None else chunk.values)
        dense = torch.zeros(y.width, len(chunk)).index_put_((chunk.columns, row_of), values)  # (F, rows)
        gram[first:, rows] = (x.select(torch.arange(first, len(x))) if first else x) @ dense
        if x is y:
            gram[rows, first:] = gram[first:, rows].T
    return gram


def solve_dual(gram: Tensor, target: Tensor, classes: int, l2: float) -> Tensor:
    """Dual coefficients a (N, C) that minimize |K @ a - ±1|² + l2 tr(aᵀ K a), K being the Gram matrix scaled to a mean
    diagonal of 1, plus 1 for a bias feature."""
    signs = 2.0 * F.one_hot(target, classes) - 1
    system = gram / gram.diagonal().mean() + 1
    system.diagonal().add_(l2)
    return torch.cholesky_solve(signs, torch.linalg.cholesky(system))


def ridge_weights(x: CSRMatrix, scale: Tensor, target: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """Primal weight (F, C) and bias (C,) of ridge regression on all texts."""
    gram = gram_matrix(x, x, scale)
    coefficients = solve_dual(gram, target, classes, l2)
    weight = scale.square().unsqueeze(1) * (x.transposed @ coefficients) / gram.diagonal().mean()
    return weight, coefficients.sum(0)
