"""Schedule-free AdamW (Defazio et al. 2024): an average of the iterates in place of a learning-rate schedule.

z is AdamW's iterate, x the mean of all z, weighted by the squares of their learning rates; gradients are taken at
y = (1 - β₁) z + β₁ x. While training, the model has y, the optimizer's state z; the x that is evaluated and saved
follows from both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EPS = 1e-8


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """Schedule-free AdamW, with weight decay at y. All its numbers are tensors, so that a step can be captured."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.betas = betas

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "schedule-free AdamW takes no closure"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"], group["weight_decay"])

    def _update(self, y: Tensor, gradient: Tensor, lr: float | Tensor, weight_decay: float) -> None:
        beta1, beta2 = self.betas
        state = self.state[y]
        if not state:
            state["z"], state["exp_avg_sq"] = y.clone(), torch.zeros_like(y)
            state["step"], state["weight_sum"] = (torch.zeros((), device=y.device) for _ in range(2))
        step, z = state["step"].add_(1), state["z"]
        variance = state["exp_avg_sq"].lerp_(gradient.square(), 1 - beta2)
        direction = gradient / (variance / (1 - beta2**step)).sqrt_().add_(EPS) + weight_decay * y
        total = state["weight_sum"].add_(lr**2).clamp(min=torch.finfo(torch.float32).tiny)  # a rate may be 0
        weight = lr**2 / total  # of the new z in x
        y.add_((z - y) * weight + direction * (lr * (beta1 * (1 - weight) - 1)))
        z.sub_(direction * lr)

    def averaged(self, parameter: Tensor) -> Tensor:
        """x of a parameter."""
        if not self.state.get(parameter):
            return parameter.detach().clone()
        beta1 = self.betas[0]
        return (parameter.detach() - (1 - beta1) * self.state[parameter]["z"]) / beta1
