"""Optimizers: which parameters have weight decay, and state that resumes bit for bit."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import nn

from seqwright.training.config import TrainingConfig
from seqwright.training.optimizer import load_optimizer_tensor, optimizer, optimizer_state


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def train(module: nn.Module, made: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
        made.zero_grad()
        module(x).square().sum().backward()
        made.step()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["adamw", "muon", "schedule-free", "adam", "sgd", "adafactor"])
def test_resume_of_optimizer_state_is_exact(kind: Any, momentum: float) -> None:
    config = TrainingConfig(optimizer=kind, learning_rate=0.01, momentum=momentum, schedule="constant")
    uninterrupted = network()
    made = optimizer(uninterrupted, config)
    train(uninterrupted, made, range(3))
    saved = {name: value.clone() for name, value in optimizer_state(made, uninterrupted).items()}
    resumed = network()
    resumed.load_state_dict(uninterrupted.state_dict())
    train(uninterrupted, made, range(3, 6))
    again = optimizer(resumed, config)
    for key, value in saved.items():
        name, quantity = key.rsplit("/", 1)
        load_optimizer_tensor(again, dict(resumed.named_parameters())[name], quantity, value)
    train(resumed, again, range(3, 6))
    for ours, theirs in zip(resumed.parameters(), uninterrupted.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    after, expected = optimizer_state(again, resumed), optimizer_state(made, uninterrupted)
    assert after.keys() == expected.keys()
    assert all(torch.equal(after[name], expected[name]) for name in expected)


def test_optimizer_state_has_plain_names() -> None:
    module = network()
    made = optimizer(module, TrainingConfig())
    train(module, made, range(1))
    names = {f"{name}/{q}" for name, _ in module.named_parameters() for q in ("step", "exp_avg", "exp_avg_sq")}
    assert set(optimizer_state(made, module)) == names


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_weight_decay_of_matrices_only(kind: Literal["adamw", "sgd"]) -> None:
    module = network()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    made = optimizer(module, TrainingConfig(optimizer=kind, learning_rate=0.5, weight_decay=0.2))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    for name, parameter in module.named_parameters():
        shrunk = 0.9 if parameter.dim() >= 2 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * shrunk)


def test_frozen_parameters_are_not_optimized() -> None:
    module = network()
    module[0].requires_grad_(False)
    made = optimizer(module, TrainingConfig())
    count = sum(len(group["params"]) for group in made.param_groups)
    assert count == 4


def test_sgd_momentum_accumulates_gradients() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    made = optimizer(module, TrainingConfig(optimizer="sgd", learning_rate=0.1, momentum=0.5, weight_decay=0.0))
    values = []
    for _ in range(3):
        module.weight.grad = torch.ones(1, 1)
        made.step()
        values.append(module.weight.item())
    assert values == pytest.approx([-0.1, -0.25, -0.425])  # steps of 1, 1.5 and 1.75
