"""Counted models report the stage of a fit, which may take minutes."""

from __future__ import annotations

from seqwright import build
from seqwright.core.progress import Progress
from tests.contract import encoders, kinds, taggers


class Stages(Progress):
    """Records the stages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str) -> None:
        self.texts.append(text)


def test_every_counted_kind_is_fitted_here() -> None:
    assert set(build.COUNTED) == {"ngram", "bag", "perceptron"}


def test_ngram_stages() -> None:
    stages = Stages()
    kinds.small("ngram adaptive").fit(kinds.corpus(), stages)
    assert stages.texts == ["counting n-grams of up to 3 tokens", "estimating their probabilities"]


def test_bag_stages_name_the_regularization_being_tried() -> None:
    stages = Stages()
    model = encoders.bag()
    model.l2 = None
    model.fit(encoders.LabeledCorpus(), stages)
    assert stages.texts[0] == "counting n-grams"
    assert "n-grams: trying l2 = " in stages.texts[1]
    assert "n-grams: trying l2 = " in stages.texts[2]
    assert stages.texts[-1].startswith("learning the weights of ")


def test_perceptron_stages_count_passes() -> None:
    stages = Stages()
    model = taggers.tagger("perceptron")
    model.fit(taggers.encoded(), stages)
    times, epochs = model.config.averaged_models, model.config.epochs
    assert len(stages.texts) == times * epochs
    assert stages.texts[-1] == f"perceptron {times} of {times}, pass {epochs} of {epochs}"
