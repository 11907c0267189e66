"""Contributions of n-grams: they sum with the bias to the logits, and name n-grams of the text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seqwright.models.bag.contributions import word_spans
from seqwright.models.bag.model import Bag, BagConfig, bag
from tests.models.test_bag import CharacterCorpus, Corpus, corpus, random_texts, sizes


def fitted(data: Corpus, words: int = 0) -> Bag:
    model = bag(BagConfig(order=3, words=words), sizes())
    model.fit(data)
    return model


@pytest.mark.parametrize("words", [0, 2])
def test_contributions_sum_to_the_logits(words: int) -> None:
    target = corpus().target
    data = CharacterCorpus(random_texts(len(target), 1), target) if words else Corpus(random_texts(120, 1), target)
    model = fitted(data, words)
    logits, contributions = model.logits(data.sources).double(), list(model.contributions(data.sources))
    for text, expected, one in zip(data.texts, logits, contributions, strict=True):
        assert_close(one.logits.sum(0) + one.bias, expected, atol=1e-5, rtol=0)
        assert len(one.spans) == len(one.of_words) == len(one.logits)
        ngrams = [tuple(text[start:end]) for start, end in one.spans[~one.of_words].tolist()]
        assert len(set(ngrams)) == len(ngrams)  # distinct n-grams of the text
        assert all(1 <= len(ngram) <= 3 for ngram in ngrams)
    assert any(one.of_words.any() for one in contributions) == (words > 0)


def test_complement_naive_bayes_contributions_sum_to_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.bag.model.MANY_CLASSES", 1)
    monkeypatch.setattr("seqwright.models.bag.model.MAX_WEIGHTS", 4)
    data = corpus()
    model = fitted(data)
    assert model.complement_nb is not None
    logits = model.logits(data.sources).double()
    for expected, one in zip(logits, model.contributions(data.sources), strict=True):
        assert_close(one.logits.sum(0) + one.bias, expected, atol=1e-4, rtol=1e-5)


def test_an_unknown_text_has_the_prior_alone() -> None:
    model = fitted(corpus())
    assert model.prior is not None
    (one,) = model.contributions(Corpus([[]], torch.zeros(1)).sources)
    assert len(one.spans) == 0
    assert_close(one.bias, model.prior.double())


def test_spans_of_words_are_those_of_their_characters() -> None:
    """The characters of `ab cde f`: words 0 and 1 are characters 0 to 6, word 2 is character 7."""
    marks = np.array([1, 2, 0, 1, 2, 2, 0, 1])
    assert word_spans(np.array([0, 2]), np.array([2, 3]), marks).tolist() == [[0, 6], [7, 8]]
