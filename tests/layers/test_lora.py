"""LoRA: the initial update is zero, only low-rank updates are trained, and merging leaves outputs unchanged."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright.core.config import UserError
from seqwright.layers.lora import add_lora, merge_lora


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4, bias=False)).double()


def test_lora_initial_update_is_zero() -> None:
    plain, adapted = network(), network()
    assert add_lora(adapted, rank=2, alpha=4.0) == 2
    x = torch.randn(3, 6, dtype=torch.float64)
    assert torch.equal(adapted(x), plain(x))


def test_lora_update_has_its_rank_and_merges_to_a_plain_model() -> None:
    plain, adapted = network(), network()
    add_lora(adapted, rank=2, alpha=4.0)
    trainable = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trainable == [f"{n}.parametrizations.weight.0.{part}" for n in (0, 2) for part in ("down", "up")]
    x = torch.randn(30, 6, dtype=torch.float64)
    optimizer = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        adapted(x).square().sum().backward()
        optimizer.step()
    before = adapted(x)
    assert not torch.equal(before, plain(x))
    merge_lora(adapted)
    assert_close(adapted(x), before)
    assert adapted.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        difference = adapted.state_dict()[name] - value
        if name.endswith("weight") and value.dim() == 2:
            assert torch.linalg.matrix_rank(difference) == 2
        else:
            assert (difference == 0).all()


def test_merge_lora_is_a_no_op_without_lora() -> None:
    plain = network()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    merge_lora(plain)
    assert_close(dict(plain.state_dict()), before)


def test_lora_refuses_a_model_without_linear_layers() -> None:
    with pytest.raises(UserError, match=r"leave training\.lora_rank out"):
        add_lora(nn.GRU(3, 3), rank=1, alpha=1.0)
