"""Embedded tagged sentences in which "it" stands for one of two nouns, and only the last word says for which.

After the pair with which Uszkoreit (2017) showed a head of a Transformer encoder: "The animal didn't cross the street
because it was too tired" / "… too wide". Kinds of nouns and their order vary, so that no position is always right.
"""

from __future__ import annotations

import numpy as np

from seqwright.data.tagged.formats import Sentence

NOUNS = {
    "animals": ("animal", "bear", "cat", "cow", "dog", "fox", "goat", "horse"),
    "places": ("street", "bridge", "field", "meadow", "park", "river", "road", "square"),
    "meals": ("soup", "bread", "cake", "cheese", "pie", "pizza", "salad", "stew"),
    "machines": ("engine", "bike", "boat", "clock", "lamp", "phone", "printer", "train"),
}
ADJECTIVES = {
    "animals": ("tired", "afraid", "hungry", "lazy"),
    "places": ("wide", "busy", "muddy", "steep"),
    "meals": ("salty", "sour", "spicy", "sweet"),
    "machines": ("broken", "expensive", "loud", "rusty"),
}
"""What only nouns of a kind are."""
TEMPLATES = ("The {} didn't cross the {} because it was too {}", "We saw the {} near the {} but it was too {}")
OTHER = "-"
"""Tag of all words but the pronoun."""
SENTENCES = 6000


def pronouns() -> list[Sentence]:
    """Distinct sentences in random order; "it" is tagged by the noun that it stands for."""
    generator = np.random.Generator(np.random.PCG64(5))
    sentences: dict[tuple[str, ...], Sentence] = {}
    while len(sentences) < SENTENCES:
        kinds = generator.permutation(list(NOUNS))[:2]
        nouns = [generator.choice(NOUNS[kind]) for kind in kinds]
        referent = generator.integers(2)
        adjective = generator.choice(ADJECTIVES[kinds[referent]])
        words = tuple(generator.choice(TEMPLATES).format(*nouns, adjective).split())
        tags = tuple(str(nouns[referent]) if word == "it" else OTHER for word in words)
        sentences[words] = Sentence(words, tags)
    return list(sentences.values())
