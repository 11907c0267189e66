"""Averaged perceptron: Viterbi against the CRF, weight averaging, dropout, and feature templates."""

from __future__ import annotations

import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqwright.core.config import UserError
from seqwright.data.tagged.corpus import invalid_transitions
from seqwright.data.tagged.sentences import char_codes
from seqwright.layers.crf import CRFHead
from seqwright.models.perceptron.features import feature_names, features, shape, word_features
from seqwright.models.perceptron.model import Perceptron, PerceptronConfig, PerceptronTrainer, viterbi


def test_viterbi_matches_the_crf() -> None:
    torch.manual_seed(0)
    head = CRFHead(5, 5)
    torch.nn.init.normal_(head.transitions)
    torch.nn.init.normal_(head.first)
    with torch.no_grad():
        torch.nn.init.eye_(head.readout.weight)
        head.readout.bias.zero_()
    for words in (1, 2, 9):
        scores = torch.randn(words, 5)
        table = torch.cat([head.transitions, head.first[None]]).detach().numpy()
        assert viterbi(scores.numpy(), table).tolist() == head.predict(scores[None])[0].tolist()
    assert viterbi(np.zeros((0, 5), np.float32), table).tolist() == []


def test_averaged_weights_are_the_mean_after_each_sentence() -> None:
    generator = np.random.default_rng(1)
    feature_rows = generator.integers(0, 7, (12, 3))
    tags = generator.integers(0, 3, 12)
    trainer = PerceptronTrainer(7, 3)
    history = []
    for _ in range(3):
        for words in (slice(0, 4), slice(4, 8), slice(8, 12)):
            trainer.update(feature_rows[words], tags[words])
            history.append([table.copy() for table in trainer.tables])
    for mean, tables in zip(trainer.averaged(), zip(*history, strict=True), strict=True):
        np.testing.assert_allclose(mean, np.mean(tables, 0), atol=1e-6)

    assert not trainer.averaged()[0][-1].any()  # unknown features have no weight


def corpus(sentences: int) -> SimpleNamespace:
    """Sentences of three words, tagged by their last letter."""
    words = [a + b for a in "pqrst" for b in "xyz"] * sentences
    tags = np.array(["xyz".index(word[-1]) for word in words])
    return SimpleNamespace(
        spelling=char_codes(words), tags=tags, first=np.arange(0, len(words), 3), words=np.full(len(words) // 3, 3)
    )


def test_averaged_models_is_the_mean_of_single_models() -> None:
    models = []
    for options in ({"averaged_models": 2}, {"seed": 1}, {"seed": 2}):
        models.append(Perceptron(PerceptronConfig(epochs=2, **{"seed": 1} | options), 3))
        models[-1].fit(corpus(4))
    averaged, *single = models
    np.testing.assert_allclose(averaged.weights, np.mean([one.weights for one in single], 0), atol=1e-6)
    np.testing.assert_allclose(averaged.transitions, np.mean([one.transitions for one in single], 0), atol=1e-6)


def test_feature_dropout_is_seeded_and_still_fits() -> None:
    data, weights = corpus(4), []
    for dropout, seed in ((0.0, 1), (0.5, 1), (0.5, 1), (0.5, 2)):
        model = Perceptron(PerceptronConfig(feature_dropout=dropout, seed=seed), 3)
        model.fit(data)
        assert not model.weights[-1].any()
        scores = model.weights[model._feature_rows(features(data.spelling, data.words))].sum(1)
        paths = [viterbi(scores[first : first + 3], model.transitions) for first in data.first]
        assert (np.concatenate(paths) == data.tags).all()
        weights.append(model.weights)
    np.testing.assert_array_equal(weights[1], weights[2])
    assert not np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[1], weights[3])


@pytest.mark.parametrize("stop", [1, 7, 20, 25, 40, 79])
def test_a_resumed_fit_equals_an_uninterrupted_one(stop: int) -> None:
    """At any sentence: inside a pass, between passes (20 sentences) and between models (40)."""
    data = corpus(4)
    model = Perceptron(PerceptronConfig(epochs=2, averaged_models=2, feature_dropout=0.3), 3)
    model.fit(data)
    stopped = model.fitting(data)
    while stopped.step < stop:
        stopped.advance(min(3, stop - stopped.step))
    resumed = model.fitting(data)
    resumed.load_state_dict(stop, {name: tensor.clone() for name, tensor in stopped.state_dict().items()})
    while resumed.step < resumed.steps:
        resumed.advance(32)
    assert resumed.steps == 80
    for table, other in zip(resumed.averaged(), (model.weights, model.transitions), strict=True):
        np.testing.assert_array_equal(table, other)


def test_a_shortened_fit_has_fewer_models_and_then_fewer_passes() -> None:
    fitting = Perceptron(PerceptronConfig(epochs=6, averaged_models=4), 3).fitting(corpus(4))  # 20 sentences
    for steps, sizes in ((0, (1, 1)), (70, (1, 3)), (130, (1, 6)), (300, (2, 6)), (480, (4, 6)), (9999, (4, 6))):
        shorter = fitting.shortened(steps)
        assert (shorter.averaged_models, shorter.epochs) == sizes


def test_forbidden_bio_transitions_unless_seen_in_training() -> None:
    """Emission scores favor I-x for ten words in a row; only B-x may start the span, except in IOB1 data."""
    names = ["O", "B-x", "I-x"]
    data = corpus(4)
    data.tags = np.array([0, 1, 2] * (len(data.tags) // 3))  # BIO: spans start with B-x
    iob1 = corpus(4)
    iob1.tags = np.array([0, 0, 2] * (len(iob1.tags) // 3))  # IOB1: spans start with I-x after O
    for training, first in ((data, "B-x"), (iob1, "I-x")):
        model = Perceptron(PerceptronConfig(), 3, invalid_transitions(names))
        model.fit(training)
        path = viterbi(np.tile(np.array([[0, 1, 99]], np.float32), (10, 1)), model.transitions)
        assert [names[tag] for tag in path] == [first, *["I-x"] * 9]


def test_word_form_affix_and_shape_features() -> None:
    values = word_features(char_codes(["Running", "running", "swimming", "ing", "7-UP"]))
    assert values["lower"][0] == values["lower"][1]
    assert values["word"][0] != values["word"][1]
    assert values["suffix 3"][0] == values["suffix 3"][2] == values["suffix 3"][3]
    assert values["suffix 4"][0] != values["suffix 4"][2]
    assert values["suffix 4"][3] == values["suffix 5"][3]  # longer than the word: NO_AFFIX
    assert values["prefix 1"][1] != values["prefix 1"][2]
    assert values["shape"][1] == values["shape"][2] != values["shape"][0]


def test_lower_casing_at_the_ends_of_the_alphabet() -> None:
    values = word_features(char_codes(["AZ", "az", "[@", "{`"]))
    assert values["lower"][0] == values["lower"][1]
    assert values["lower"][2] != values["lower"][3]  # code points next to Z and A are not letters


def test_features_below_min_count_are_dropped() -> None:
    words = ["a", "dog", "a", "dog"]  # every feature occurs at least twice, none more than four times
    data = SimpleNamespace(
        spelling=char_codes(words), tags=np.array([0, 1, 0, 1]), first=np.array([0, 2]), words=np.array([2, 2])
    )
    known = {}
    for min_count in (1, 2, 5):
        model = Perceptron(PerceptronConfig(min_count=min_count), 2)
        model.fit(data)
        known[min_count] = len(model.keys)
    assert known[1] == known[2] > 0
    assert known[5] == 0
    assert not model.weights.any()


def test_word_shapes_distinguish_character_classes() -> None:
    words = ["Word", "word", "WORD", "WoRd", "123", "12a", "--", "x-y", "a.b", "語", "🎈"]
    assert len(set(shape(char_codes(words)).tolist())) == len(words)


def test_neighbor_features_stop_at_the_sentence_boundary() -> None:
    """Features of a sentence do not depend on the other sentences of the batch."""
    one, two = ["a", "dog", "runs"], ["the", "dog", "runs"]
    batched = features(char_codes(one + two), np.array([3, 3]))
    np.testing.assert_array_equal(batched[:3], features(char_codes(one), np.array([3])))
    np.testing.assert_array_equal(batched[3:], features(char_codes(two), np.array([3])))
    assert (batched[2] != batched[5]).sum() == 1  # the word two positions before


SMALL, CAPITALS = range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1)


@pytest.mark.parametrize(
    ("small", "capitals"),
    [
        (range(0x430, 0x44A), range(0x410, 0x42A)),  # Cyrillic, two bytes in UTF-8
        (range(0xAB70, 0xAB8A), range(0x13A0, 0x13BA)),  # Cherokee, three, whose capitals came first
        (range(0x10428, 0x10442), range(0x10400, 0x1041A)),  # Deseret, four
        (range(0x5D0, 0x5EA), None),  # Hebrew, which has no capitals
        (range(0x20000, 0x2001A), None),  # Chinese characters beyond the tables
    ],
)
def test_features_are_equivariant_to_the_script(small: range, capitals: range | None) -> None:
    """A one-to-one substitution of letters changes the hashes, but not which words share a feature."""
    text = "The walker walked , talking U.S. English-men and women in 1984 ; a WALK strengthens THEM and them !"
    words = text.split()
    names = dict(zip(SMALL, small, strict=True))
    if capitals is None:
        words = [word.lower() for word in words]
    else:
        names |= dict(zip(CAPITALS, capitals, strict=True))
    latin, other = (
        features(char_codes(text), np.array([9, len(words) - 9]))
        for text in (words, [word.translate(names) for word in words])
    )
    assert not (latin == other).all(1).any()
    np.testing.assert_array_equal(latin[:, None] == latin, other[:, None] == other)


def test_features_are_invariant_to_unicode_normalization() -> None:
    decomposed, composed = (unicodedata.normalize(form, "Việt Übung 한국").split() for form in ("NFD", "NFC"))
    assert decomposed != composed
    counts = np.array([len(decomposed)])
    np.testing.assert_array_equal(features(char_codes(decomposed), counts), features(char_codes(composed), counts))


def test_weights_of_another_feature_version_are_refused() -> None:
    model = Perceptron(PerceptronConfig(), 3)
    model.fit(corpus(1))
    old = {name: tensor for name, tensor in model.state_dict().items() if name != "version"}
    with pytest.raises(UserError, match="train it again"):
        Perceptron(PerceptronConfig(), 3).load_state_dict(old)


@pytest.mark.parametrize(
    ("position", "word", "changed"),
    [
        (0, "fish", 1),  # the word itself
        (1, "7", 5),  # word, suffix, shape; pair with the tagged word; pair with its other neighbor
        (1, "Lazy", 2),  # word and shape; lower case and suffix stay
        (1, "wolf", 4),  # word and suffix; both pairs
        (3, "7", 5),
        (3, "Cats", 2),
        (3, "bats", 3),  # word and both pairs
        (4, "fish", 1),
    ],
)
def test_number_of_features_that_depend_on_a_neighbor(position: int, word: str, changed: int) -> None:
    words = ["the", "lazy", "dog", "cats", "sleep"]
    before = features(char_codes(words), np.array([5]))
    words[position] = word
    assert (features(char_codes(words), np.array([5]))[2] != before[2]).sum() == changed


def test_too_many_weights_drop_rare_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.perceptron.model.MAX_WEIGHTS", 300)
    model = Perceptron(PerceptronConfig(), 3)
    model.fit(corpus(2))
    assert 0 < len(model.keys) <= 100
    assert "are dropped" in model.notes[0]


def test_too_many_tags_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.perceptron.model.MAX_TAGS", 2)
    with pytest.raises(UserError, match="--model lstm"):
        Perceptron(PerceptronConfig(), 3).fit(corpus(1))


def test_feature_names_are_equal_where_features_are() -> None:
    sentences = [("The", "old", "man"), ("the", "Old", "boats", "a", "man"), ("Man",)]
    words = [word for sentence in sentences for word in sentence]
    hashes = features(char_codes(words), np.array([len(sentence) for sentence in sentences]))
    names = [row for sentence in sentences for row in feature_names(sentence)]
    assert hashes.shape == (len(words), len(names[0]))
    for column, template in enumerate(zip(*names, strict=True)):
        if "shape" not in template[0]:  # words of one shape are different words
            pairs = set(zip(template, hashes[:, column].tolist(), strict=True))
            assert len(pairs) == len(set(template)) == len(set(hashes[:, column])), template
