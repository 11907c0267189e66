"""The laws on every kind that gives each word a tag."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seqwright import build
from seqwright.core.protocols import Autoregressive, Counted, Model
from seqwright.studies.encoder_laws import ENCODER_LAWS
from seqwright.studies.training_laws import TRAINING_LAWS

from .taggers import TAGGERS, fresh, sentences, tagger

NEURAL = [name for name, row in TAGGERS.items() if row["kind"] not in build.COUNTED]


def test_every_kind_has_a_row() -> None:
    assert set(build.task_spec("tagged").models) == {str(row["kind"]) for row in TAGGERS.values()}


@pytest.mark.parametrize("name", TAGGERS)
def test_it_satisfies_the_protocols(name: str) -> None:
    model = tagger(name)
    assert isinstance(model, Model)
    assert not isinstance(model, Autoregressive)
    if name in NEURAL:
        assert all(hasattr(model, part) for part in ("hidden", "head", "parameters", "pooled"))
    else:
        assert isinstance(model, Counted)


@pytest.mark.parametrize("law", ENCODER_LAWS)
@pytest.mark.parametrize("name", TAGGERS)
def test_law(name: str, law: str) -> None:
    with torch.no_grad():
        assert ENCODER_LAWS[law](tagger(name), sentences()) <= 1e-9


@pytest.mark.parametrize("law", TRAINING_LAWS)
@pytest.mark.parametrize("name", NEURAL)
def test_training_law(name: str, law: str) -> None:
    assert TRAINING_LAWS[law](tagger(name), sentences()) <= 1e-9


@pytest.mark.parametrize("name", TAGGERS)
def test_answers_of_a_batch_are_those_of_its_rows(name: str) -> None:
    model, given = tagger(name), sentences()
    counts = given.source.word_starts.sum(1).tolist()  # type: ignore[union-attr]
    with torch.no_grad():
        tags, likely = model.tag(given.source)
        for row, words in enumerate(counts):
            own, sure = model.tag(given.rows_of(torch.tensor([row])).source)
            assert torch.equal(tags[row, :words], own[0, :words])
            if likely is not None:
                assert (likely[row, :words] - sure[0, :words]).abs().max() <= 1e-9
                assert ((likely[row, :words] > 0) & (likely[row, :words] <= 1)).all()


def test_what_a_perceptron_knows_is_in_its_tensors() -> None:
    model, given = tagger("perceptron"), sentences()
    empty = fresh("perceptron")
    empty.load_state_dict(model.state_dict())
    assert torch.equal(empty.tag(given.source)[0], model.tag(given.source)[0])
    assert torch.equal(empty(given), model(given))


@pytest.mark.parametrize("name", NEURAL)
def test_every_word_s_spelling_and_neighbors_matter(name: str) -> None:
    """Nothing real is masked: what a word's tag is worth changes with any other word that the encoder can see."""
    model, given = tagger(name), sentences().rows_of(slice(1))
    source = given.source
    assert source.ids is not None
    assert source.spelling is not None
    assert source.word_starts is not None
    with torch.no_grad():
        before = model(given)  # (1, W, C)
        for place in source.word_starts[0].nonzero().flatten().tolist():
            ids, spelling = source.ids.clone(), source.spelling.clone()
            ids[0, place] = (ids[0, place] + 1) % 256 + 4
            spelling[0, place, 0] += 1
            moved = (model(replace(given, source=replace(source, ids=ids))) - before).abs().amax(-1)[0]  # (W,)
            assert (moved > 1e-9).all() if name not in ("rnn", "gpt") else moved[-1] > 1e-9
            other = model(replace(given, source=replace(source, spelling=spelling)))
            assert ((other - before).abs().max() > 1e-9) == bool(TAGGERS[name].get("char_features"))
