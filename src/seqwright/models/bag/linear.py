"""Linear models of sparse features: L2-regularized loss minimized by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.core.batch import OutputSpec
from seqwright.models.bag.features import CSRMatrix
from seqwright.models.bag.lbfgs import lbfgs

MAX_ITERATIONS, WARM_ITERATIONS = 100, 60
"""L-BFGS iterations from zero, and from the weights that nine tenths of the texts gave."""
GRADIENT_TOLERANCE = 1e-4
"""L-BFGS stops when no component of the gradient of the summed loss is larger."""


def squared_hinge(logits: Tensor, target: Tensor) -> Tensor:
    """One-vs-rest squared hinge loss (Rifkin & Klautau 2004): examples beyond the margin have no gradient, which
    gives a higher accuracy than softmax regression between many classes (docs/decisions/0132)."""
    signs = 2 * F.one_hot(target, logits.size(1)) - 1
    return (1 - signs * logits).clamp(min=0).square().sum(1).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "class": F.cross_entropy,
    "squared_hinge": squared_hinge,
    "multilabel": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}
"""Mean losses by output kind: softmax regression or squared hinge between classes, a logistic regression per label,
ridge regression."""


def prior_logits(target: Tensor, output: OutputSpec) -> Tensor:
    """(C,): logits of the label frequencies, or the mean value: the prediction for a text that says nothing."""
    if output.kind == "class":
        return torch.bincount(target, minlength=output.count).clamp(min=0.1).log()
    mean = target.float().mean(0)
    return mean if output.kind == "regression" else mean.logit(eps=0.1 / len(target))


def fit_linear(
    x: CSRMatrix,
    target: Tensor,
    loss: str,
    *,
    scale: Tensor,
    l2: float,
    weight: Tensor,
    bias: Tensor,
    center: float = 0.0,
    max_iter: int = MAX_ITERATIONS,
) -> tuple[Tensor, Tensor]:
    """Weight (F, C) and bias (C,) that minimize mean loss(x @ (scale ∘ weight) + bias) + l2 / 2 |weight - center|² / N,
    warm-started from those given; the bias is not regularized. Of merged columns, `center` is that of each copy."""
    mean_loss, rows, centers = LOSSES[loss], len(x), center * x.unit_weight  # (F, 1)

    def unflatten(flat: Tensor) -> tuple[Tensor, Tensor]:
        return flat[: -len(bias)].view_as(weight), flat[-len(bias) :]

    @torch.no_grad()
    def value_and_gradient(flat: Tensor) -> tuple[float, Tensor]:
        w, b = unflatten(flat)
        logits = (x @ (scale * w) + b).requires_grad_()
        # Autograd covers the loss only: the gradient of the sparse product is the product with the transposed matrix.
        with torch.enable_grad():
            value = mean_loss(logits, target)
            (slope,) = torch.autograd.grad(value, logits)
        shift = w - centers
        penalty = l2 / (2 * rows) * float(shift.square().sum())
        gradient = (x.transposed @ slope).mul_(scale).add_(shift, alpha=l2 / rows)
        return float(value) + penalty, torch.cat([gradient.flatten(), slope.sum(0)])

    start = torch.cat([weight.flatten(), bias])
    return unflatten(lbfgs(value_and_gradient, start, max_iter=max_iter, tolerance=GRADIENT_TOLERANCE / rows))
