"""Weights by plain name: tied ones once, temporary buffers never, another model's refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqwright import build
from seqwright.core.batch import Vocabulary
from seqwright.core.config import UserError
from seqwright.models.encoders.gpt import GPTConfig
from seqwright.training.weights import init_from, load_weights, weights


def gpt(**options: object) -> nn.Module:
    return build.model(GPTConfig(layers=1, width=8, heads=2, context=4, **options), Vocabulary(size=5))  # type: ignore[arg-type]


def test_tied_weights_are_saved_once_and_stay_tied() -> None:
    model, other = gpt(), gpt()
    saved = {name: tensor.detach().clone() for name, tensor in weights(model).items()}
    assert "embedding.weight" in saved
    assert "head.readout.weight" not in saved
    load_weights(other, saved)
    for ours, theirs in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert other.head.readout.weight is other.embedding.weight


def test_buffers_that_can_be_computed_are_not_saved() -> None:
    assert set(weights(gpt(positions="rope"))) == {name for name, _ in gpt(positions="rope").named_parameters()}


def test_lasting_buffers_are_saved() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert set(weights(model)) == set(model.state_dict())


def test_another_models_weights_are_refused_with_reasons() -> None:
    saved = dict(weights(gpt()))
    with pytest.raises(UserError, match=r"missing: \['head.readout.weight'\]; unknown: none"):
        load_weights(gpt(tied=False), saved)
    with pytest.raises(UserError, match=r"unknown: \['encoder.positions.table.weight'\]"):
        load_weights(gpt(positions="none"), saved)
    with pytest.raises(
        UserError, match=r"of another shape: .*feed_forward.up.weight.*the recipe they were trained with"
    ):
        load_weights(gpt(ffn_width=9), saved)


def test_a_grown_model_begins_with_what_was_there() -> None:
    torch.manual_seed(0)
    old, new = nn.Embedding(5, 3), nn.Embedding(7, 3)
    fresh = new.weight.detach().clone()
    init_from(new, weights(old))
    assert torch.equal(new.weight[:5], old.weight)
    torch.testing.assert_close(new.weight[5:], fresh[5:] + old.weight.mean(0))
    with pytest.raises(UserError, match="of another shape"):
        init_from(nn.Embedding(7, 4), weights(old))
    with pytest.raises(UserError, match="of another shape"):
        init_from(nn.Embedding(4, 3), weights(old))


def reader(rows: int, answers: int) -> nn.Module:
    parts = {"embedding": nn.Embedding(rows, 3), "encoder": nn.Linear(3, 3), "head": nn.Linear(3, answers)}
    return nn.ModuleDict(parts)


def test_a_head_of_other_things_begins_fresh() -> None:
    old = reader(5, 5)
    grown, other = reader(7, 7), reader(5, 9)
    untouched = other["head"].weight.detach().clone()
    assert init_from(grown, weights(old)) == []
    assert torch.equal(grown["head"].weight[:5], old["head"].weight)
    assert init_from(other, weights(old)) == ["head"]
    assert torch.equal(other["head"].weight, untouched)
    assert torch.equal(other["encoder"].weight, old["encoder"].weight)


def test_the_reading_half_of_a_translator_is_found() -> None:
    old = nn.ModuleDict({"source_embedding": nn.Embedding(5, 3), "reader": nn.Linear(3, 3), "decoder": nn.Linear(3, 3)})
    new = reader(5, 2)
    assert init_from(new, weights(old)) == ["head"]
    assert torch.equal(new["encoder"].weight, old["reader"].weight)
    with pytest.raises(UserError, match="belong to another model"):
        init_from(reader(5, 2), {name: tensor for name, tensor in weights(old).items() if "reader" not in name})
