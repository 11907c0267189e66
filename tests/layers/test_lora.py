"""LoRA: the initial update is zero, only low-rank updates are trained, and merging leaves outputs unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seqwright.core.batch import Batch
from seqwright.core.config import UserError
from seqwright.layers.lora import TRAINED_IN_FULL, add_lora, merge_lora
from tests.contract import captioners, encoders, images, kinds, taggers, translators


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


def test_lora_refuses_a_model_without_weight_matrices() -> None:
    with pytest.raises(UserError, match=r"leave training\.lora_rank out"):
        add_lora(nn.Sequential(nn.LayerNorm(3)), rank=1, alpha=1.0)


MODELS: dict[str, Callable[[], tuple[Any, Batch]]] = {
    **{
        f"text/{name}": lambda name=name: (kinds.small(name), kinds.batch())
        for name in ("lstm", "lstm mogrifier", "rnn sigmoid", "gpt")
    },
    **{
        f"pairs/{name}": lambda name=name: (translators.translator(name), translators.pairs())
        for name in ("lstm", "gpt")
    },
    "pairs/transformer": lambda: (translators.translator("transformer"), translators.pairs()),
    **{
        f"labeled/{name}": lambda name=name: (encoders.classifier(name), encoders.texts())
        for name in ("cnn", "gru", "bert")
    },
    "masked/lstm": lambda: (encoders.filler("lstm"), encoders.blanks()),
    "tagged/lstm": lambda: (taggers.tagger("lstm"), taggers.sentences()),
    "tagged/bert": lambda: (taggers.tagger("bert"), taggers.sentences()),
    "images/vit": lambda: images.seeing("vit"),
    "images/gru": lambda: images.seeing("gru"),
    "captions/transformer": lambda: (captioners.captioner("transformer"), captioners.captioned()),
}


@pytest.mark.parametrize("name", MODELS)
def test_lora_trains_and_merges_every_network(name: str) -> None:
    model, batch = MODELS[name]()
    names, plain = list(model.state_dict()), model(batch)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    assert add_lora(model, rank=1, alpha=1.0) > 0
    assert_close(model(batch), plain)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # after the first step `up` is no longer zero, and `down` has a gradient
        optimizer.zero_grad()
        total, _ = model.head.loss(model.hidden(batch)[0], batch.target)
        total.backward()
        optimizer.step()
    adapted = model(batch)
    merge_lora(model)
    assert_close(model(batch), adapted)
    assert sorted(model.state_dict()) == sorted(names)
    assert (adapted - plain).abs().max() > 1e-6
    for key, parameter in model.named_parameters():
        change = parameter.detach() - before[key]
        if key.split(".")[0] in TRAINED_IN_FULL:
            continue
        if parameter.dim() < 2 or "positions" in key:
            assert not change.any(), key
        else:
            assert torch.linalg.matrix_rank(change.flatten(1), atol=1e-9) <= 1, key
