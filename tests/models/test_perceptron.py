"""The perceptron against the chain it is, and its features against what they say."""

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
from seqwright.models.perceptron.features import features, looks, shape
from seqwright.models.perceptron.model import Learning, Perceptron, PerceptronConfig, best_path


def test_its_best_path_is_the_chain_s() -> None:
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
        assert best_path(scores.numpy(), table).tolist() == head.predict(scores[None])[0].tolist()
    assert best_path(np.zeros((0, 5), np.float32), table).tolist() == []


def test_the_means_are_those_of_the_weights_after_each_sentence() -> None:
    generator = np.random.default_rng(1)
    places = generator.integers(0, 7, (12, 3))
    tags = generator.integers(0, 3, 12)
    learning = Learning(7, 3)
    seen = []
    for _ in range(3):
        for words in (slice(0, 4), slice(4, 8), slice(8, 12)):
            learning.see(places[words], tags[words])
            seen.append([table.copy() for table in learning.tables])
    for mean, tables in zip(learning.means(), zip(*seen, strict=True), strict=True):
        np.testing.assert_allclose(mean, np.mean(tables, 0), atol=1e-6)

    assert not learning.means()[0][-1].any()  # what is not known says nothing


def corpus(sentences: int) -> SimpleNamespace:
    """Sentences of three words whose tag is their last letter's."""
    words = [a + b for a in "pqrst" for b in "xyz"] * sentences
    tags = np.array(["xyz".index(word[-1]) for word in words])
    return SimpleNamespace(
        spelling=char_codes(words), tags=tags, first=np.arange(0, len(words), 3), words=np.full(len(words) // 3, 3)
    )


def test_several_trainings_are_averaged() -> None:
    models = []
    for options in ({"averaged_models": 2}, {"seed": 1}, {"seed": 2}):
        models.append(Perceptron(PerceptronConfig(epochs=2, **{"seed": 1} | options), 3))
        models[-1].fit(corpus(4))
    both, *alone = models
    np.testing.assert_allclose(both.weights, np.mean([one.weights for one in alone], 0), atol=1e-6)
    np.testing.assert_allclose(both.transitions, np.mean([one.transitions for one in alone], 0), atol=1e-6)


def test_what_is_hidden_is_a_function_of_the_seed_and_leaves_enough_to_learn() -> None:
    given, learned = corpus(4), []
    for hidden, seed in ((0.0, 1), (0.5, 1), (0.5, 1), (0.5, 2)):
        model = Perceptron(PerceptronConfig(feature_dropout=hidden, seed=seed), 3)
        model.fit(given)
        assert not model.weights[-1].any()
        scores = model.weights[model._places(features(given.spelling, given.words))].sum(1)
        paths = [best_path(scores[first : first + 3], model.transitions) for first in given.first]
        assert (np.concatenate(paths) == given.tags).all()
        learned.append(model.weights)
    np.testing.assert_array_equal(learned[1], learned[2])
    assert not np.array_equal(learned[0], learned[1])
    assert not np.array_equal(learned[1], learned[3])


def test_spans_begin_before_they_go_on_unless_training_knows_better() -> None:
    """Ten words in one row are all inside of the same span, by their features; only B may begin it."""
    names = ["O", "B-x", "I-x"]
    data = corpus(4)
    data.tags = np.array([0, 1, 2] * (len(data.tags) // 3))  # no row begins with I-x
    odd = corpus(4)
    odd.tags = np.array([0, 0, 2] * (len(odd.tags) // 3))  # none does, but spans begin with it after O
    for given, first in ((data, "B-x"), (odd, "I-x")):
        model = Perceptron(PerceptronConfig(), 3, invalid_transitions(names))
        model.fit(given)
        path = best_path(np.tile(np.array([[0, 1, 99]], np.float32), (10, 1)), model.transitions)
        assert [names[tag] for tag in path] == [first, *["I-x"] * 9]


def test_features_are_alike_where_words_are() -> None:
    own = looks(char_codes(["Running", "running", "swimming", "ing", "7-UP"]))
    assert own["lower"][0] == own["lower"][1]
    assert own["word"][0] != own["word"][1]
    assert own["suffix 3"][0] == own["suffix 3"][2] == own["suffix 3"][3]
    assert own["suffix 4"][0] != own["suffix 4"][2]
    assert own["suffix 4"][3] == own["suffix 5"][3]  # it has no such suffix
    assert own["prefix 1"][1] != own["prefix 1"][2]
    assert own["shape"][1] == own["shape"][2] != own["shape"][0]


def test_lower_case_is_that_of_the_alphabet_s_ends_too() -> None:
    own = looks(char_codes(["AZ", "az", "[@", "{`"]))
    assert own["lower"][0] == own["lower"][1]
    assert own["lower"][2] != own["lower"][3]  # the neighbors of Z and A are no letters


def test_features_rarer_than_the_minimum_are_left_out() -> None:
    words = ["a", "dog", "a", "dog"]  # every feature is there twice at least, none more than four times
    given = SimpleNamespace(
        spelling=char_codes(words), tags=np.array([0, 1, 0, 1]), first=np.array([0, 2]), words=np.array([2, 2])
    )
    known = {}
    for minimum in (1, 2, 5):
        model = Perceptron(PerceptronConfig(min_count=minimum), 2)
        model.fit(given)
        known[minimum] = len(model.keys)
    assert known[1] == known[2] > 0
    assert known[5] == 0
    assert not model.weights.any()


def test_shapes_tell_kinds_of_letters() -> None:
    words = ["Word", "word", "WORD", "WoRd", "123", "12a", "--", "x-y", "a.b", "語", "🎈"]
    assert len(set(shape(char_codes(words)).tolist())) == len(words)


def test_neighbors_end_with_the_sentence() -> None:
    """The same word has the same features in the same sentence, whatever sentences stand beside it."""
    one, two = ["a", "dog", "runs"], ["the", "dog", "runs"]
    together = features(char_codes(one + two), np.array([3, 3]))
    np.testing.assert_array_equal(together[:3], features(char_codes(one), np.array([3])))
    np.testing.assert_array_equal(together[3:], features(char_codes(two), np.array([3])))
    assert (together[2] != together[5]).sum() == 1  # the word two places before


SMALL, CAPITALS = range(ord("a"), ord("z") + 1), range(ord("A"), ord("Z") + 1)


@pytest.mark.parametrize(
    ("small", "capitals"),
    [
        (range(0x430, 0x44A), range(0x410, 0x42A)),  # Cyrillic, two bytes in UTF-8
        (range(0xAB70, 0xAB8A), range(0x13A0, 0x13BA)),  # Cherokee, three, whose capitals came first
        (range(0x10428, 0x10442), range(0x10400, 0x1041A)),  # Deseret, four
        (range(0x5D0, 0x5EA), None),  # Hebrew, which has no capitals
        (range(0x20000, 0x2001A), None),  # Chinese characters behind the tables
    ],
)
def test_letters_by_other_names_share_what_they_shared(small: range, capitals: range | None) -> None:
    """Renaming letters one-to-one changes no more than the numbers of features: who shares one with whom stays."""
    text = "The walker walked , talking U.S. English-men and women in 1984 ; a WALK strengthens THEM and them !"
    words = text.split()
    names = dict(zip(SMALL, small, strict=True))
    if capitals is None:
        words = [word.lower() for word in words]
    else:
        names |= dict(zip(CAPITALS, capitals, strict=True))
    own, other = (
        features(char_codes(some), np.array([9, len(words) - 9]))
        for some in (words, [word.translate(names) for word in words])
    )
    assert not (own == other).all(1).any()
    np.testing.assert_array_equal(own[:, None] == own, other[:, None] == other)


def test_accents_written_apart_are_those_of_their_letters() -> None:
    apart, together = (unicodedata.normalize(form, "Việt Übung 한국").split() for form in ("NFD", "NFC"))
    assert apart != together
    counts = np.array([len(apart)])
    np.testing.assert_array_equal(features(char_codes(apart), counts), features(char_codes(together), counts))


def test_features_of_other_versions_are_refused() -> None:
    model = Perceptron(PerceptronConfig(), 3)
    model.fit(corpus(1))
    old = {name: tensor for name, tensor in model.state_dict().items() if name != "version"}
    with pytest.raises(UserError, match="train it again"):
        Perceptron(PerceptronConfig(), 3).load_state_dict(old)


@pytest.mark.parametrize(
    ("place", "word", "changed"),
    [
        (0, "fish", 1),  # the word itself
        (1, "7", 5),  # word, suffix, shape; with the word asked about; with the word on its other side
        (1, "Lazy", 2),  # word and shape; lower case and suffix stay
        (1, "wolf", 4),  # word and suffix; both pairs
        (3, "7", 5),
        (3, "Cats", 2),
        (3, "bats", 3),  # word and both pairs
        (4, "fish", 1),
    ],
)
def test_what_neighbors_change(place: int, word: str, changed: int) -> None:
    words = ["the", "lazy", "dog", "cats", "sleep"]
    before = features(char_codes(words), np.array([5]))
    words[place] = word
    assert (features(char_codes(words), np.array([5]))[2] != before[2]).sum() == changed


def test_too_many_weights_leave_out_rare_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.perceptron.model.MOST_WEIGHTS", 300)
    model = Perceptron(PerceptronConfig(), 3)
    model.fit(corpus(2))
    assert 0 < len(model.keys) <= 100
    assert "left out" in model.notes[0]


def test_more_tags_than_pairs_can_be_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqwright.models.perceptron.model.MOST_TAGS", 2)
    with pytest.raises(UserError, match="--model lstm"):
        Perceptron(PerceptronConfig(), 3).fit(corpus(1))
