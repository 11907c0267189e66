"""Muon (Jordan et al. 2024): momentum of hidden weight matrices, orthogonalized; AdamW for everything else.

Updates are scaled by 0.2 √max(m, n), so that their root mean square is AdamW's and learning rates and weight decay
carry over (Liu et al. 2025). Matrices of one shape are orthogonalized together, in bfloat16 on a GPU and where the
training is in bfloat16. Most CPUs compute that ten times slower than float32; those for which a default recipe chooses
bfloat16 compute it in half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqwright.training.sharded_tensors import Shards, full

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration: the steepest slope at 0, at the price of singular values in 0.7 … 1.2."""
ITERATIONS = 5
MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):
    """Muon for parameter groups with `orthogonal`, AdamW for the others. Both keep their state in `state`."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        fused: bool,
        capturable: bool = False,
        bfloat16: bool = False,
        shards: Shards,
    ):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.shards, self.bfloat16 = shards, bfloat16
        others = [group for group in self.param_groups if not group["orthogonal"]]
        self.matrices = [group for group in self.param_groups if group["orthogonal"]]
        self.adamw: torch.optim.AdamW | None = None
        if others:
            self.adamw = torch.optim.AdamW(others, lr=lr, betas=betas, eps=1e-8, fused=fused, capturable=capturable)
            self.adamw._warned_capturable_if_run_uncaptured = True  # warm-up steps are not captured
            self.adamw.state = self.state
            self.param_groups = [*self.matrices, *self.adamw.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "Muon takes no closure"
        if self.adamw is not None:
            self.adamw.step()
        for group in self.matrices:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(self.shards.shape(parameter), []).append(parameter)
            for shape, parameters in by_shape.items():
                self._update(parameters, shape, group["lr"], group["weight_decay"])

    def _update(self, parameters: list[Tensor], shape: torch.Size, lr: float | Tensor, weight_decay: float) -> None:
        """One step of matrices of one shape; the learning rate of a captured step is a tensor."""
        momenta: list[Tensor] = []
        for parameter in parameters:
            state, gradient = self.state[parameter], parameter.grad
            assert gradient is not None
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            momenta.append(gradient.lerp(momentum, MOMENTUM))  # Nesterov
        # Sharded matrices are gathered: every rank orthogonalizes all of them, and updates its shards.
        joined = zip(momenta, parameters, strict=True)
        stacked = torch.stack([full(self.shards.joined(*each)) for each in joined])
        updates = orthogonalize(stacked, bfloat16=self.bfloat16 or stacked.is_cuda)
        scale = 0.2 * max(shape) ** 0.5
        for parameter, update in zip(parameters, updates.to(parameters[0].dtype), strict=True):
            parameter.mul_(1 - lr * weight_decay).sub_(self.shards.part(update, parameter) * (lr * scale))


def orthogonalize(matrices: Tensor, *, bfloat16: bool = False) -> Tensor:
    """Matrices (L, M, N) with their singular values near 1, by Newton-Schulz iteration."""
    x = matrices.bfloat16() if bfloat16 else matrices
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7).view(-1, 1, 1)  # spectral norm at most 1
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if tall else x
