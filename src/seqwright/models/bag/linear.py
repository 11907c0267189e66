"""Linear models of sparse features: L2-regularized least loss, found by L-BFGS (Liu & Nocedal 1989)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bag.features import Presence

ROUNDS = 100
HISTORY = 10
"""Past steps that are remembered: each is as large as all weights twice."""
ENOUGH = 1e-4
"""The descent ends where no part of the gradient of the mean loss is larger."""


def margins(logits: Tensor, target: Tensor) -> Tensor:
    """Squared hinge of each class against all others (Rifkin & Klautau 2004): what is told apart well enough is left
    alone, which answers more of many classes rightly than softmax regression does."""
    signs = 2 * F.one_hot(target, logits.size(1)) - 1
    return (1 - signs * logits).clamp(min=0).square().sum(1).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "class": F.cross_entropy,
    "margins": margins,
    "multilabel": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}
"""By what is answered: softmax regression or margins between classes, one logistic regression a label, ridge
regression."""


def descend(
    x: Presence,
    target: Tensor,
    loss: str,
    *,
    scale: Tensor,
    l2: float,
    weight: Tensor,
    bias: Tensor,
    center: float = 0.0,
    rounds: int = ROUNDS,
) -> tuple[Tensor, Tensor]:
    """Weight (F, C) and bias (C,) of the least mean loss(x @ (scale ∘ weight) + bias) + l2 / 2 |weight - center|² / N,
    begun with those given; the bias is not held back."""
    mean_loss, many = LOSSES[loss], len(x)
    flat = torch.cat([weight.flatten(), bias]).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [flat],
        max_iter=rounds,
        history_size=HISTORY,
        tolerance_grad=ENOUGH / many,
        tolerance_change=1e-7,
        line_search_fn="strong_wolfe",
    )

    def parts() -> tuple[Tensor, Tensor]:
        own = flat.detach()
        return own[: -len(bias)].view_as(weight), own[-len(bias) :]

    @torch.no_grad()
    def objective() -> float:
        own, base = parts()
        logits = (x @ (scale * own) + base).requires_grad_()
        with torch.enable_grad():
            value = mean_loss(logits, target)
            (slope,) = torch.autograd.grad(value, logits)
        value = value + l2 / (2 * many) * (own - center).square().sum()
        gradient = scale * (x.transposed @ slope) + l2 / many * (own - center)
        flat.grad = torch.cat([gradient.flatten(), slope.sum(0)])
        return float(value)

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    return parts()
