"""The laws on every kind that says what is on an image."""

from __future__ import annotations

import pytest
import torch

from seqwright import build
from seqwright.core.protocols import Autoregressive
from seqwright.studies.laws import LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

from .captioners import CAPTIONERS, captioned, captioner


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("captions").models) == {str(row["kind"]) for row in CAPTIONERS.values()}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", CAPTIONERS)
def test_law(name: str, law: str) -> None:
    model = captioner(name)
    assert isinstance(model, Autoregressive)
    with torch.no_grad():
        assert LAWS[law](model, captioned()) <= 1e-9


@pytest.mark.parametrize("law", TRAINING_LAWS)
@pytest.mark.parametrize("name", CAPTIONERS)
def test_training_law(name: str, law: str) -> None:
    assert TRAINING_LAWS[law](captioner(name), captioned()) <= 1e-9


@pytest.mark.parametrize("name", CAPTIONERS)
def test_the_picture_matters(name: str) -> None:
    model, one, other = captioner(name), captioned(), captioned(seed=1)
    with torch.no_grad():
        said = [model.step(one.input, model.start(given.source, capacity=9))[0] for given in (one, other)]
    assert (said[0] - said[1]).abs().amax(-1).min() > 1e-6
