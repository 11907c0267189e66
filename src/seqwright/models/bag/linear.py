"""Linear models of sparse features: L2-regularized loss minimized by L-BFGS (Liu & Nocedal 1989)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import CSRMatrix

MAX_ITERATIONS = 100
HISTORY = 10
"""L-BFGS history size: each entry takes twice the memory of the weights."""
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
    warm-started from those given; the bias is not regularized."""
    mean_loss, rows = LOSSES[loss], len(x)
    flat = torch.cat([weight.flatten(), bias]).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [flat],
        max_iter=max_iter,
        history_size=HISTORY,
        tolerance_grad=GRADIENT_TOLERANCE / rows,
        tolerance_change=1e-7,
        line_search_fn="strong_wolfe",
    )

    def unflatten() -> tuple[Tensor, Tensor]:
        values = flat.detach()
        return values[: -len(bias)].view_as(weight), values[-len(bias) :]

    @torch.no_grad()
    def closure() -> float:
        w, b = unflatten()
        logits = (x @ (scale * w) + b).requires_grad_()
        # Autograd covers the loss only: the gradient of the sparse product is the product with the transposed matrix.
        with torch.enable_grad():
            value = mean_loss(logits, target)
            (slope,) = torch.autograd.grad(value, logits)
        value = value + l2 / (2 * rows) * (w - center).square().sum()
        gradient = scale * (x.transposed @ slope) + l2 / rows * (w - center)
        flat.grad = torch.cat([gradient.flatten(), slope.sum(0)])
        return float(value)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return unflatten()
