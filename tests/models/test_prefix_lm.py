"""Prefix language models: a GPT where there is no source, and a source that is seen both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seqwright import build
from seqwright.core.batch import Source, Vocabularies
from seqwright.core.config import UserError
from seqwright.training.weights import init_from, weights
from tests.contract.kinds import CONTEXT, GPT, VOCABULARY, batch, small
from tests.contract.translators import OTHER, pairs, translator


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope", "none"])
def test_without_a_source_it_is_a_gpt(positions: str) -> None:
    names = {"learned": "gpt", "sinusoidal": "gpt sinusoidal", "rope": "gpt rotary", "none": "gpt unplaced"}
    model = small(names[positions])
    options = {"rope": {"bias": False}, "none": {"tied": False}}.get(positions, {})
    config = build.model_config(dict(GPT) | {"positions": positions} | options, task="pairs")
    sizes = Vocabularies(source=VOCABULARY, target=VOCABULARY, joint=True)
    prefix = build.model(config, sizes, task="pairs").double().eval()
    fresh = init_from(prefix, {name: tensor for name, tensor in weights(model).items() if name != "head.readout.bias"})
    assert not fresh
    given = batch()
    with torch.no_grad():
        expected = model(given) - (model.head.readout.bias if model.head.readout.bias is not None else 0)
        assert (prefix(given) - expected).abs().max() < 1e-9
        state = prefix.start(given.source, capacity=CONTEXT)
        stepped, _ = prefix.step(given.input, state)
        assert (stepped - expected[:, -1].log_softmax(-1)).abs().max() < 1e-9


def test_the_source_is_seen_both_ways_and_the_target_is_not() -> None:
    model, given = translator("gpt"), pairs(rows=1)
    assert given.source.ids is not None
    other = given.source.ids.clone()
    other[0, -1] = 3 + (other[0, -1] - 2) % 5
    with torch.no_grad():
        before, after = (model.encode(Source(mask=given.source.mask, ids=ids)) for ids in (given.source.ids, other))
        assert (before - after).abs()[0, 0].max() > 1e-6, "the first token of a source knows its last"
        later = given.input.clone()
        later[:, -1] = 3 + (later[:, -1] - 2) % 8
        changed = (model(replace(given, input=later)) - model(given)).abs().amax((0, 2))
    assert (changed[:-1] < 1e-12).all()
    assert changed[-1] > 1e-6


def test_two_vocabularies_are_refused() -> None:
    config = build.model_config({"kind": "gpt", "width": 8, "heads": 2}, task="pairs")
    with pytest.raises(UserError, match="joint = true"):
        build.model(config, Vocabularies(source=OTHER, target=VOCABULARY, joint=False), task="pairs")


def test_a_source_and_a_target_need_room() -> None:
    with pytest.raises(UserError, match="no room for a source and a target"):
        build.model_config({"kind": "gpt", "context": 1}, task="pairs")
