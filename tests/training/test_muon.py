"""Muon: orthogonalized updates of hidden matrices, PyTorch's own as the oracle, AdamW for all other parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from seqwright.training.config import TrainingConfig
from seqwright.training.muon import Muon, orthogonalize
from seqwright.training.optimizer import WHOLE, optimizer


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 24, 8), (1, 8, 40)])
def test_orthogonalize_moves_singular_values_near_1_and_keeps_the_singular_vectors(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    matrices = u @ torch.diag_embed(s.clamp(min=0.1)) @ v  # the iteration needs longer for smaller ones
    values = torch.linalg.svdvals(orthogonalize(matrices))
    assert values.min() > 0.6
    assert values.max() < 1.3
    rotated = u.mT @ orthogonalize(matrices) @ v.mT
    assert (rotated - torch.diag_embed(rotated.diagonal(dim1=-2, dim2=-1))).abs().max() < 1e-9


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 64)])
def test_steps_equal_those_of_pytorch_up_to_its_bfloat16(shape: tuple[int, int], bfloat16: bool) -> None:
    start = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    group: dict[str, Any] = {"params": [ours], "weight_decay": 0.1, "lr_scale": 1.0, "orthogonal": True}
    muon = Muon([group], lr=0.01, betas=(0.9, 0.99), fused=True, bfloat16=bfloat16, shards=WHOLE)
    oracle = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        muon.step()
        oracle.step()
    moved = (theirs - start).norm()
    assert (ours - theirs).norm() < 0.02 * moved


def test_only_hidden_matrices_are_orthogonalized() -> None:
    module = nn.ModuleDict(
        {"embedding": nn.Embedding(5, 4), "encoder": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))}
        | {"head": nn.Linear(4, 5)}
    )
    made = optimizer(module, TrainingConfig(optimizer="muon"))
    names = {parameter: name for name, parameter in module.named_parameters()}
    orthogonal = [names[p] for group in made.param_groups if group["orthogonal"] for p in group["params"]]
    assert orthogonal == ["encoder.0.weight"]
    assert sum(len(group["params"]) for group in made.param_groups) == len(names)


def test_the_scheduled_learning_rate_reaches_both_kinds_of_groups() -> None:
    module = nn.Sequential(nn.Linear(4, 4))
    made = optimizer(module, TrainingConfig(optimizer="muon", learning_rate=0.1))
    before = [p.detach().clone() for p in module.parameters()]
    for group in made.param_groups:
        group["lr"] = 0.0
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    made.step()
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
