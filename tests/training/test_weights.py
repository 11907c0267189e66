"""Weights by name: tied ones once, no temporary buffers; another model's are refused, a pretrained model's reused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.training.weights import init_from, load_weights, weights
from tests.contract.kinds import configured


def gpt(**options: object) -> nn.Module:
    return build.model(configured("gpt", layers=1, width=8, heads=2, context=4, **options), Vocabulary(size=5))  # type: ignore[arg-type]


def test_tied_weights_are_saved_once_and_stay_tied() -> None:
    model, other = gpt(), gpt()
    saved = {name: tensor.detach().clone() for name, tensor in weights(model).items()}
    assert "embedding.weight" in saved
    assert "head.readout.weight" not in saved
    load_weights(other, saved)
    for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert other.head.readout.weight is other.embedding.weight


def test_non_persistent_buffers_are_not_saved() -> None:
    assert set(weights(gpt(positions="rope"))) == {name for name, _ in gpt(positions="rope").named_parameters()}


def test_persistent_buffers_are_saved() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert set(weights(model)) == set(model.state_dict())


def test_weights_of_another_model_are_refused_with_reasons() -> None:
    saved = dict(weights(gpt()))
    with pytest.raises(UserError, match=r"missing: \['head.readout.weight'\]; unknown: none"):
        load_weights(gpt(tied=False), saved)
    with pytest.raises(UserError, match=r"unknown: \['encoder.positions.table.weight'\]"):
        load_weights(gpt(positions="none"), saved)
    with pytest.raises(
        UserError, match=r"of another shape: .*feed_forward.up.weight.*the recipe they were trained with"
    ):
        load_weights(gpt(ffn_width=9), saved)


def test_init_from_a_smaller_vocabulary_adds_token_embeddings() -> None:
    torch.manual_seed(0)
    old, new = nn.Embedding(5, 3), nn.Embedding(7, 3)
    initial = new.weight.detach().clone()
    init_from(new, weights(old))
    assert torch.equal(new.weight[:5], old.weight)
    torch.testing.assert_close(new.weight[5:], initial[5:] + old.weight.mean(0))
    with pytest.raises(UserError, match="of another shape"):
        init_from(nn.Embedding(7, 4), weights(old))
    with pytest.raises(UserError, match="of another shape"):
        init_from(nn.Embedding(4, 3), weights(old))


def encoder_model(rows: int, classes: int) -> nn.Module:
    parts = {"embedding": nn.Embedding(rows, 3), "encoder": nn.Linear(3, 3), "head": nn.Linear(3, classes)}
    return nn.ModuleDict(parts)


def test_init_from_another_task_keeps_the_new_head() -> None:
    old = encoder_model(5, 5)
    grown, other = encoder_model(7, 7), encoder_model(5, 9)
    untouched = other["head"].weight.detach().clone()
    assert init_from(grown, weights(old)) == []
    assert torch.equal(grown["head"].weight[:5], old["head"].weight)
    assert init_from(other, weights(old)) == ["head"]
    assert torch.equal(other["head"].weight, untouched)
    assert torch.equal(other["encoder"].weight, old["encoder"].weight)


def test_init_from_the_encoder_of_an_encoder_decoder() -> None:
    old = nn.ModuleDict({"source_embedding": nn.Embedding(5, 3), "reader": nn.Linear(3, 3), "decoder": nn.Linear(3, 3)})
    new = encoder_model(5, 2)
    assert init_from(new, weights(old)) == ["head"]
    assert torch.equal(new["encoder"].weight, old["reader"].weight)
    with pytest.raises(UserError, match="belong to another model"):
        init_from(encoder_model(5, 2), {name: tensor for name, tensor in weights(old).items() if "reader" not in name})
