"""One-vs-rest ridge regression on TF-IDF features, in its dual form: as many unknowns as texts.

Features are weighted by inverse document frequency rather than by naive Bayes; for few texts, any number of classes
takes one linear system (Rifkin & Klautau 2004).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import CSRMatrix

BLOCK_ROWS, MAX_DENSE = 256, 10_000_000
"""Rows of the feature matrix made dense at a time, few enough for the cache to hold what a sparse row meets of them,
and entries."""


def inverse_document_frequency(x: CSRMatrix) -> Tensor:
    """(F,): smoothed IDF, log((1 + N) / (1 + df)) + 1 as in scikit-learn."""
    return ((1 + len(x)) / (1 + torch.bincount(x.columns, minlength=x.width))).log() + 1


def kernel_matrix(x: CSRMatrix, scale: Tensor) -> tuple[Tensor, Tensor]:
    """(N, N): dot products of rows, with columns scaled by (F,), divided by the mean of those with themselves, plus 1
    for a bias feature; and that mean."""
    kernel = _products(x, x, scale)
    mean = kernel.diagonal().mean()
    return kernel.div_(mean).add_(1), mean


def cross_kernel_matrix(x: CSRMatrix, y: CSRMatrix, scale: Tensor, mean: Tensor) -> Tensor:
    """(N, M): the same between other rows x and those of a kernel matrix."""
    return _products(x, y, scale).div_(mean).add_(1)


def _products(x: CSRMatrix, y: CSRMatrix, scale: Tensor) -> Tensor:
    """(N, M): dot products of the rows of x and y, with columns scaled by (F,); of x with itself, each is computed
    once."""
    products, squares = torch.empty(len(x), len(y)), scale.square()
    size = min(BLOCK_ROWS, len(y), max(1, MAX_DENSE // max(1, y.width)))
    block = torch.zeros(y.width, size)  # (F, rows)
    for start in range(0, len(y), size):
        rows, first = torch.arange(start, min(start + size, len(y))), start if x is y else 0
        chunk = y.select(rows)
        entries = chunk.columns, torch.repeat_interleave(torch.arange(len(chunk)), chunk.indptr.diff())
        block[entries] = squares[chunk.columns] * (1.0 if chunk.values is None else chunk.values)
        products[first:, rows] = ((x.select(torch.arange(first, len(x))) if first else x) @ block)[:, : len(rows)]
        if x is y:
            products[rows, first:] = products[first:, rows].T
        block[entries] = 0.0
    return products


def solve_dual(kernel: Tensor, target: Tensor, classes: int, l2: float) -> Tensor:
    """Dual coefficients a (N, C) that minimize |K @ a - ±1|² + l2 tr(aᵀ K a) for a kernel matrix K."""
    signs = 2.0 * F.one_hot(target, classes) - 1
    system = kernel.clone()
    system.diagonal().add_(l2)
    factor = torch.linalg.cholesky(system)
    # A quarter of the time of torch.cholesky_solve.
    half = torch.linalg.solve_triangular(factor, signs, upper=False)
    return torch.linalg.solve_triangular(factor.mT, half, upper=True)


def ridge_weights(x: CSRMatrix, scale: Tensor, target: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """Primal weight (F, C) and bias (C,) of ridge regression on all texts."""
    kernel, mean = kernel_matrix(x, scale)
    coefficients = solve_dual(kernel, target, classes, l2)
    weight = scale.square().unsqueeze(1) * (x.transposed @ coefficients) / mean
    return weight, coefficients.sum(0)
