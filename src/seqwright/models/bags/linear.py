"""Linear models of sparse features: L2-regularised least loss, found by L-BFGS (Liu & Nocedal 1989)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwright.models.bags.grams import Presence

ROUNDS = 100
HISTORY = 10
"""Past steps that are remembered: each is as large as all weights twice."""
ENOUGH = 1e-4
"""The descent ends where no part of the gradient of the mean loss is larger."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "class": F.cross_entropy,
    "labels": F.binary_cross_entropy_with_logits,
    "value": F.mse_loss,
}
"""By what is answered: softmax regression, one logistic regression a label, ridge regression."""


def descend(
    x: Presence,
    target: Tensor,
    answers: str,
    *,
    scale: Tensor,
    l2: float,
    weight: Tensor,
    bias: Tensor,
    rounds: int = ROUNDS,
) -> tuple[Tensor, Tensor]:
    """Weight (F, C) and bias (C,) of the least mean loss(x @ (scale ∘ weight) + bias) + l2 / 2 |weight|² / N, begun
    with those given; the bias is not held back."""
    loss, many = LOSSES[answers], len(x)
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
            value = loss(logits, target)
            (slope,) = torch.autograd.grad(value, logits)
        value = value + l2 / (2 * many) * own.square().sum()
        gradient = scale * (x.transposed @ slope) + l2 / many * own
        flat.grad = torch.cat([gradient.flatten(), slope.sum(0)])
        return float(value)

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    return parts()
