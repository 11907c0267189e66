"""LoRA: nothing changes before anything is learned, only corrections are learned, and merging changes nothing."""

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


def test_a_fresh_correction_corrects_nothing() -> None:
    plain, corrected = network(), network()
    assert add_lora(corrected, rank=2, alpha=4.0) == 2
    x = torch.randn(3, 6, dtype=torch.float64)
    assert torch.equal(corrected(x), plain(x))


def test_what_is_learned_has_the_rank_and_merges_to_a_plain_model() -> None:
    plain, corrected = network(), network()
    add_lora(corrected, rank=2, alpha=4.0)
    learned = [name for name, parameter in corrected.named_parameters() if parameter.requires_grad]
    assert learned == [f"{n}.parametrizations.weight.0.{part}" for n in (0, 2) for part in ("down", "up")]
    x = torch.randn(30, 6, dtype=torch.float64)
    descent = torch.optim.SGD([p for p in corrected.parameters() if p.requires_grad], lr=0.05)
    for _ in range(3):
        descent.zero_grad()
        corrected(x).square().sum().backward()
        descent.step()
    before = corrected(x)
    assert not torch.equal(before, plain(x))
    merge_lora(corrected)
    assert_close(corrected(x), before)
    assert corrected.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        difference = corrected.state_dict()[name] - value
        if name.endswith("weight") and value.dim() == 2:
            assert torch.linalg.matrix_rank(difference) == 2
        else:
            assert (difference == 0).all()


def test_merging_a_plain_model_leaves_it() -> None:
    plain = network()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    merge_lora(plain)
    assert_close(dict(plain.state_dict()), before)


def test_a_model_without_linear_maps_is_refused() -> None:
    with pytest.raises(UserError, match=r"leave training\.lora_rank out"):
        add_lora(nn.GRU(3, 3), rank=1, alpha=1.0)
