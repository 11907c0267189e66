"""Prefix language models: equal to a GPT without a source; bidirectional over the source, causal over the target."""

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
    rows = batch()
    with torch.no_grad():
        expected = model(rows) - (model.head.readout.bias if model.head.readout.bias is not None else 0)
        assert (prefix(rows) - expected).abs().max() < 1e-9
        state = prefix.start(rows.source, capacity=CONTEXT)
        stepped, _ = prefix.step(rows.input, state)
        assert (stepped - expected[:, -1].log_softmax(-1)).abs().max() < 1e-9


def test_attention_is_bidirectional_over_the_source_alone() -> None:
    model, rows = translator("gpt"), pairs(rows=1)
    assert rows.source.ids is not None
    other = rows.source.ids.clone()
    other[0, -1] = 3 + (other[0, -1] - 2) % 5
    with torch.no_grad():
        before, after = (model.encode(Source(mask=rows.source.mask, ids=ids)) for ids in (rows.source.ids, other))
        assert (before - after).abs()[0, 0].max() > 1e-6, "the first token of a source attends to its last"
        later = rows.input.clone()
        later[:, -1] = 3 + (later[:, -1] - 2) % 8
        changed = (model(replace(rows, input=later)) - model(rows)).abs().amax((0, 2))
    assert (changed[:-1] < 1e-12).all()
    assert changed[-1] > 1e-6


def test_two_vocabularies_are_refused() -> None:
    config = build.model_config({"kind": "gpt", "width": 8, "heads": 2}, task="pairs")
    with pytest.raises(UserError, match="joint = true"):
        build.model(config, Vocabularies(source=OTHER, target=VOCABULARY, joint=False), task="pairs")


def test_a_context_without_room_for_a_target_is_refused() -> None:
    with pytest.raises(UserError, match="no room for a source and a target"):
        build.model_config({"kind": "gpt", "context": 1}, task="pairs")
