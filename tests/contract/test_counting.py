"""Models that are counted say what they are at, for whoever waits: it may take minutes."""

from __future__ import annotations

from seqwright import build
from tests.contract import encoders, kinds, taggers


def test_every_counted_model_is_fitted_here() -> None:
    assert set(build.COUNTED) == {"ngram", "bag", "perceptron"}


def test_n_grams_say_what_is_counted() -> None:
    said: list[str] = []
    kinds.small("ngram adaptive").fit(kinds.corpus(), said.append)
    assert said == ["counting n-grams of up to 3 tokens", "estimating their probabilities"]


def test_a_bag_says_what_it_tries() -> None:
    said: list[str] = []
    model = encoders.bag()
    model.l2 = None
    model.fit(encoders.Several(), said.append)
    assert said[0] == "counting n-grams"
    assert "n-grams: trying l2 = " in said[1]
    assert "; the least loss so far is " in said[2]
    assert said[-1].startswith("learning the weights of ")


def test_a_perceptron_says_how_far_it_is() -> None:
    said: list[str] = []
    model = taggers.tagger("perceptron")
    model.fit(taggers.encoded(), said.append)
    times, epochs = model.config.averaged_models, model.config.epochs
    assert len(said) == times * epochs
    assert said[-1] == f"perceptron {times} of {times}, pass {epochs} of {epochs}"
