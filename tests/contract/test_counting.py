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


class Steps(Progress):
    """Records the steps."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []

    def step(self, step: int, steps: int, loss: float | None, tokens_per_second: float) -> None:
        self.taken.append((step, steps))


def test_perceptron_steps_count_the_sentences_of_all_passes() -> None:
    steps, model, corpus = Steps(), taggers.tagger("perceptron"), taggers.encoded()
    model.fit(corpus, steps)
    total = model.config.averaged_models * model.config.epochs * len(corpus)
    assert steps.taken[-1] == (total, total)
