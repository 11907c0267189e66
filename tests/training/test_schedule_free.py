"""Schedule-free AdamW: equal to the three sequences of Defazio et al. (2024), which it keeps as two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import optimizer
from seqwright.training.schedule_free import ScheduleFreeAdamW

BETA1, BETA2, DECAY = 0.9, 0.95, 0.1


def gradient(y: torch.Tensor, step: int) -> torch.Tensor:
    noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return 2 * (y - 1) + noise


def test_steps_are_those_of_the_paper() -> None:
    """Algorithm 1: z, x and y written out, with a warm-up of the learning rate."""
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameter = nn.Parameter(start.clone())
    made = ScheduleFreeAdamW([{"params": [parameter], "weight_decay": DECAY}], lr=0.05, betas=(BETA1, BETA2))
    z, x, variance, weights = start.clone(), start.clone(), torch.zeros_like(start), 0.0
    for step in range(1, 9):
        lr = 0.05 * min(1, step / 3)
        y = (1 - BETA1) * z + BETA1 * x
        assert_close(parameter.detach(), y)
        g = gradient(y, step)
        variance = BETA2 * variance + (1 - BETA2) * g.square()
        direction = g / ((variance / (1 - BETA2**step)).sqrt() + 1e-8)
        z = z - lr * direction - lr * DECAY * y
        weights += lr**2
        x = x + (z - x) * lr**2 / weights
        made.param_groups[0]["lr"] = lr
        parameter.grad = gradient(parameter.detach(), step)
        made.step()
    assert_close(made.averaged(parameter), x)


def test_a_learning_rate_of_0_changes_nothing() -> None:
    parameter = nn.Parameter(torch.ones(2))
    made = ScheduleFreeAdamW([{"params": [parameter]}], lr=0.0, betas=(BETA1, BETA2))
    parameter.grad = torch.ones(2)
    made.step()
    assert_close(made.averaged(parameter), torch.ones(2))


def test_weights_without_a_step_are_their_own_average() -> None:
    module = nn.Linear(2, 2)
    made = optimizer(module, TrainingConfig(optimizer="schedule-free", schedule="constant"))
    assert isinstance(made, ScheduleFreeAdamW)
    assert_close(made.averaged(module.weight), module.weight.detach())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, 'schedule = "constant"'),
        ({"schedule": "constant", "ema_decay": 0.9}, "ema_decay"),
        ({"beta1": 0.0}, "beta1"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        TrainingConfig(optimizer="schedule-free", **changes)
