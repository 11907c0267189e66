"""The laws on every kind with a source, whose rows are padded on that side too."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.protocols import Autoregressive
from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

from .translators import MIXED, TRANSLATORS, pairs, translator


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("pairs").models) == {str(row["kind"]) for row in (TRANSLATORS | MIXED).values()}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_it_satisfies_the_protocols(name: str) -> None:
    model = translator(name)
    assert isinstance(model, Autoregressive)
    assert all(hasattr(model, part) for part in ("hidden", "head", "parameters"))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TRANSLATORS | MIXED)
def test_law(name: str, law: str) -> None:
    with torch.no_grad():
        assert LAWS[law](translator(name), pairs()) <= 1e-9


@pytest.mark.parametrize("name", ["transformer unplaced", "lstm", "gru bottleneck"])
def test_two_vocabularies_keep_the_laws(name: str) -> None:
    with torch.no_grad():
        assert LAWS["stepping = teacher forcing"](translator(name, joint=False), pairs()) <= 1e-9


@pytest.mark.parametrize("name", TRANSLATORS | MIXED)
def test_the_source_matters(name: str) -> None:
    model, given = translator(name), pairs()
    other = pairs(seed=5).source
    with torch.no_grad():
        mine, _ = model.step(given.input, model.start(given.source, capacity=9))
        theirs, _ = model.step(given.input, model.start(other, capacity=9))
    assert (mine - theirs).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("law", TRAINING_LAWS)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_training_law(name: str, law: str) -> None:
    assert TRAINING_LAWS[law](translator(name), pairs()) <= 1e-9
