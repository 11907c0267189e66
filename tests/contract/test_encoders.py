"""The laws on every kind that reads a text in full and answers of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from seqwright import build
from seqwright.core.protocols import Autoregressive, Model
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

from .encoders import ANSWERS, CLASSIFIERS, MASKED, bag, blanks, classifier, filler, mixture, texts


def test_every_kind_has_a_row() -> None:
    neural = set(build.task_spec("labeled").models) - {*build.COUNTED, *build.DERIVED}
    assert neural == {str(row["kind"]) for row in CLASSIFIERS.values()}
    assert set(build.task_spec("masked").models) == {str(row["kind"]) for row in MASKED.values()}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_it_satisfies_the_protocols(name: str) -> None:
    model = classifier(name)
    assert isinstance(model, Model)
    assert not isinstance(model, Autoregressive)
    assert all(hasattr(model, part) for part in ("hidden", "head", "parameters", "pooled"))


@pytest.mark.parametrize("law", ENCODER_LAWS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_law(name: str, law: str) -> None:
    with torch.no_grad():
        assert ENCODER_LAWS[law](classifier(name, segments=2), texts()) <= 1e-9


@pytest.mark.parametrize("law", ENCODER_LAWS)
@pytest.mark.parametrize("made", [bag, mixture])
def test_law_of_what_is_counted_or_made(made: Callable[[], Any], law: str) -> None:
    model, given = made(), texts()
    with torch.no_grad():
        assert ENCODER_LAWS[law](model, given) <= 1e-5
        assert model(given).std() > 1e-3


@pytest.mark.parametrize("made", [bag, mixture])
def test_what_is_counted_or_made_is_kept(made: Callable[[], Any]) -> None:
    model, other = made(), made()
    with torch.no_grad():
        other.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()})
        assert (other(texts()) - model(texts())).abs().max() > 1e-3
        other.load_state_dict(model.state_dict())
        assert (other(texts()) == model(texts())).all()


@pytest.mark.parametrize("law", TRAINING_LAWS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_training_law(name: str, law: str) -> None:
    assert TRAINING_LAWS[law](classifier(name), texts()) <= 1e-9


@pytest.mark.parametrize("kind", ANSWERS)
def test_other_answers_keep_the_laws_of_training(kind: str) -> None:
    for law in TRAINING_LAWS.values():
        assert law(classifier("lstm pooled", kind), texts(kind)) <= 1e-9


@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if "cnn" not in name])
def test_every_token_and_segment_matters(name: str) -> None:
    """Nothing real is masked. (The largest of a convolution's windows may well leave some tokens out.)"""
    model, given = classifier(name, segments=2), texts(rows=1)
    ids, segments = given.source.ids, given.source.segments
    assert ids is not None
    assert segments is not None
    with torch.no_grad():
        before = model(given)
        for place in range(ids.size(1)):
            at = torch.arange(ids.size(1)) == place
            other = replace(given.source, ids=torch.where(at, 3 + (ids - 2) % 8, ids))
            assert (model(replace(given, source=other)) - before).abs().max() > 1e-9
            other = replace(given.source, segments=torch.where(at, 1 - segments, segments))
            assert (model(replace(given, source=other)) - before).abs().max() > 1e-9


@pytest.mark.parametrize("law", ENCODER_LAWS | TRAINING_LAWS)
@pytest.mark.parametrize("name", MASKED)
def test_law_of_hidden_tokens(name: str, law: str) -> None:
    assert (ENCODER_LAWS | TRAINING_LAWS)[law](filler(name), blanks()) <= 1e-9
