"""Coreference seen in a head: from "it" to the animal that was too tired, or to the street that was too wide."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import seqwright as sw
from seqwright.data.samples.pronouns import ADJECTIVES, NOUNS, pronouns

SENTENCE = "The animal didn't cross the street because it was too"


def test_pronouns_are_tagged_by_the_noun_that_the_adjective_fits() -> None:
    places: Counter[int] = Counter()
    for sentence in pronouns():
        (tag,) = {tag for tag in sentence.tags if tag != "-"}
        assert [word for word, one in zip(sentence.words, sentence.tags, strict=True) if one == tag] == ["it"]
        fitting = [kind for kind, adjectives in ADJECTIVES.items() if sentence.words[-1] in adjectives]
        assert [kind for kind, nouns in NOUNS.items() if tag in nouns] == fitting
        nouns = [word for word in sentence.words if any(word in group for group in NOUNS.values())]
        places[nouns.index(tag)] += 1
    assert min(places.values()) > 0.45 * places.total()  # neither noun is the better guess


@pytest.mark.slow
def test_a_head_attends_from_the_pronoun_to_its_noun(tmp_path: Path) -> None:
    run = sw.train("pronouns", set=["training.sample_every=0"], run=tmp_path / "pronouns")
    weights = []
    for adjective, noun in (("tired", "animal"), ("wide", "street")):
        inspection = run.inspect(f"{SENTENCE} {adjective}")
        row, column = inspection.tokens.index("it"), inspection.tokens.index(noun)
        heads = inspection.attention["self"].layers  # (H, T, T) of each layer
        weights.append([float(head[row, column]) for layer in heads for head in layer])
        (tagged,) = run.tag([f"{SENTENCE} {adjective}"])
        assert tagged.tags[tagged.words.index("it")] == noun
    assert max(min(pair) for pair in zip(*weights, strict=True)) > 0.5
