"""Capabilities beyond the seam are declared: the protocols that each family of models implements."""

from __future__ import annotations

import pytest

from seqwright.core import protocols as p

from . import captioners, encoders, images, kinds, taggers, translators

CAPABILITIES = (
    p.Autoregressive,
    p.Counted,
    p.FitsInSteps,
    p.EncodesSource,
    p.AttendsSource,
    p.MasksDocuments,
    p.ModelsSource,
    p.TagsWords,
    p.Ensemble,
    p.ExplainsBackOff,
    p.Adapts,
)
MODELS = {
    "gpt": (lambda: kinds.small("gpt"), {p.Autoregressive, p.EncodesSource, p.MasksDocuments}),
    "ngram": (lambda: kinds.small("ngram"), {p.Autoregressive, p.Counted, p.ExplainsBackOff}),
    "adaptive": (lambda: kinds.small("ngram adaptive"), {p.Autoregressive, p.Counted, p.Adapts}),
    "mixture": (lambda: kinds.small("mixture"), {p.Autoregressive, p.AttendsSource, p.Ensemble}),
    "translator": (lambda: translators.translator("lstm"), {p.Autoregressive, p.EncodesSource, p.AttendsSource}),
    "prefix": (lambda: translators.translator("gpt"), {p.Autoregressive, p.EncodesSource}),
    "captioner": (lambda: captioners.captioner("gru"), {p.Autoregressive, p.EncodesSource, p.AttendsSource}),
    "classifier": (lambda: encoders.classifier("lstm"), {p.EncodesSource, p.ModelsSource}),
    "bag": (encoders.bag, {p.Counted}),
    "classifiers": (encoders.mixture, {p.Ensemble}),
    "tagger": (lambda: taggers.tagger("lstm"), {p.EncodesSource, p.ModelsSource, p.TagsWords}),
    "perceptron": (lambda: taggers.tagger("perceptron"), {p.Counted, p.FitsInSteps, p.TagsWords}),
    "vit": (lambda: images.seeing("vit")[0], {p.EncodesSource, p.ModelsSource}),
}


@pytest.mark.parametrize("name", MODELS)
def test_capabilities_are_those_declared(name: str) -> None:
    make, declared = MODELS[name]
    model = make()
    assert {capability for capability in CAPABILITIES if isinstance(model, capability)} == declared


def test_counted_models_have_the_interface_of_a_module_without_parameters() -> None:
    for name in ("ngram", "bag", "perceptron"):
        model = MODELS[name][0]()
        assert model.to("cpu").eval().train() is model
