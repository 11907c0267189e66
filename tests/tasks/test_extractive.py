"""Keeping words of the source: what each way keeps, and that a keep-or-drop model learns which words are worth it."""

from __future__ import annotations

from seqwright.data.parallel.formats import Pair
from seqwright.metrics.ngram_overlap import rouge
from seqwright.tasks.translation.extractive import KeepDrop, extracts, lead, oracle, words

CODE = "@cached\ndef getUserName(self):\n    return self.name_of[7]"


def test_identifiers_are_split_into_words() -> None:
    assert words("getUserName(name_of, HTTP2)") == ["get", "user", "name", "of", "http", "2"]
    assert lead(CODE) == "def get user name self"
    assert lead("") == ""
    assert oracle(CODE, ["Return the name of a User."]) == "user name return of"


def pairs(first: int) -> list[Pair]:
    """Nouns are wanted, what is around them is not."""
    nouns = [f"noun{chr(97 + n % 7)}" for n in range(first, first + 60)]
    return [Pair((f"def x():\n    return {noun}",), (f"the {noun}",)) for noun in nouns]


def test_keep_drop_keeps_words_that_targets_keep() -> None:
    keep = KeepDrop(pairs(0))
    assert keep("def x():\n    return nounc") == "nounc"
    assert keep("") == ""
    assert keep("return") == "return"  # something is better than nothing


def test_rouge_of_oracle_exceeds_keep_drop_and_that_of_keep_drop_exceeds_lead() -> None:
    held_out = pairs(3)
    kept = extracts(pairs(0), held_out)
    scores = {name: rouge(own, [pair.targets for pair in held_out], "1").value for name, own in kept.items()}
    assert scores["oracle"] >= scores["keep_drop"] > scores["lead"]
