"""Ridge regression between classes, one against the others, in its dual form: as many unknowns as texts.

N-grams count by how rare they are rather than by what they say of classes; few texts of any number of classes take one
system of equations (Rifkin & Klautau 2004).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import Presence

DENSE = 10_000_000
"""Numbers of texts that are written out in full at once."""


def rarity(x: Presence) -> Tensor:
    """(F,): inverse document frequency, as scikit-learn smooths it."""
    return ((1 + len(x)) / (1 + torch.bincount(x.columns, minlength=x.width))).log() + 1


def gram(x: Presence, y: Presence, scale: Tensor) -> Tensor:
    """(N, M): products of the rows of x with those of y, the columns of both times scale (F,)."""
    products = []
    for rows in torch.arange(len(y)).tensor_split(1 + len(y) * y.width // DENSE):
        some = y.select(rows)
        owners = torch.repeat_interleave(torch.arange(len(some)), some.starts.diff())
        values = scale.square()[some.columns] * (1.0 if some.values is None else some.values)
        full = torch.zeros(y.width, len(some)).index_put_((some.columns, owners), values)  # (F, rows)
        products.append(x @ full)
    return torch.cat(products, 1)


def solve(own: Tensor, target: Tensor, classes: int, l2: float) -> Tensor:
    """Coefficients (N, C) of texts with products own (N, N): least |own @ a - ±1|² + l2 tr(a' own a), where one more
    product of 1 is the bias and texts have length 1 on average."""
    signs = 2.0 * F.one_hot(target, classes) - 1
    system = own / own.diagonal().mean() + 1
    system.diagonal().add_(l2)
    return torch.cholesky_solve(signs, torch.linalg.cholesky(system))


def weights(x: Presence, scale: Tensor, target: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """Weight (F, C) and bias (C,) of all texts."""
    own = gram(x, x, scale)
    coefficients = solve(own, target, classes, l2)
    weight = scale.square().unsqueeze(1) * (x.transposed @ coefficients) / own.diagonal().mean()
    return weight, coefficients.sum(0)
