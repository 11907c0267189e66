"""L-BFGS (Liu & Nocedal 1989) for convex functions.

torch.optim.LBFGS does the same, but the first optimizer of a process imports PyTorch's compiler: two seconds, as long
as a small bag of n-grams is fitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from torch import Tensor

HISTORY = 10
"""Pairs of steps and gradient changes that are kept: each takes twice the memory of the variables."""
SUFFICIENT_DECREASE = 1e-4
"""Armijo's condition: the share of the decrease predicted by the slope that a step must reach."""
MAX_HALVINGS = 20
MIN_CHANGE = 1e-7
"""Ends where a step moves no variable by more than this, or changes the value by less than this share of it."""


def lbfgs(
    value_and_gradient: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, *, max_iter: int, tolerance: float
) -> Tensor:
    """The minimizer, to a gradient of no component above `tolerance`, or that of the last iteration."""
    x = start
    value, gradient = value_and_gradient(x)
    history: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=HISTORY)
    for _ in range(max_iter):
        if float(gradient.abs().max()) <= tolerance:
            break
        direction = _newton_direction(gradient, history)
        slope = float(gradient @ direction)
        # Without history the scale of a step is unknown: the first moves all variables together by at most 1.
        size = 1.0 if history else min(1.0, 1 / float(gradient.abs().sum()))
        for _ in range(MAX_HALVINGS):
            after = x + size * direction
            value_after, gradient_after = value_and_gradient(after)
            if value_after <= value + SUFFICIENT_DECREASE * size * slope:
                break
            # The minimum of the parabola through both values and the slope.
            parabola = -slope * size**2 / (2 * (value_after - value - size * slope))
            size = min(max(parabola, size / 10), size / 2)
        else:
            break
        step, change = after - x, gradient_after - gradient
        curvature = float(step @ change)
        if curvature > 0:  # always, but for rounding: the function is convex
            history.append((step, change, curvature))
        decrease, x, value, gradient = value - value_after, after, value_after, gradient_after
        if decrease <= MIN_CHANGE * abs(value) or float(step.abs().max()) <= MIN_CHANGE:
            break
    return x


def _newton_direction(gradient: Tensor, history: deque[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Minus the approximate inverse Hessian times the gradient, by the two-loop recursion."""
    direction = gradient.neg()
    factors = []
    for step, change, curvature in reversed(history):
        factors.append(float(step @ direction) / curvature)
        direction.add_(change, alpha=-factors[-1])
    if history:
        _, change, curvature = history[-1]
        direction *= curvature / float(change @ change)
    for (step, change, curvature), factor in zip(history, reversed(factors), strict=True):
        direction.add_(step, alpha=factor - float(change @ direction) / curvature)
    return direction
