"""Running text is split into words as a corpus has them."""

from __future__ import annotations

import pytest

from seqwright.text.word_splitting import WordSplitter

TREEBANK = WordSplitter(
    ["do", "n't", "'s", ".", ",", "-", "Mr.", "e-mail", ":)", "it", "it's", "end", "end.", *map(str, range(99))]
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I don't know, Mr. X.", ["I", "do", "n't", "know", ",", "Mr.", "X", "."]),
        ("It's it's DON'T", ["It", "'s", "it", "'s", "DO", "N'T"]),
        ("(e-mail) a long-term end.", ["(", "e-mail", ")", "a", "long", "-", "term", "end", "."]),
        (
            "in the U.S., e.g. $3,000.50 at 3:30!!",
            ["in", "the", "U.S.", ",", "e.g.", "$", "3,000.50", "at", "3:30", "!!"],
        ),
        ("see http://a.b/c?d=e. Or x@y.org, :)", ["see", "http://a.b/c?d=e", ".", "Or", "x@y.org", ",", ":)"]),
        ("J. Smith end.The 😀👍🏽", ["J.", "Smith", "end", ".", "The", "😀👍🏽"]),
        ("phải không?", ["phải", "không", "?"]),
        ("cafe\u0301.", ["cafe\u0301", "."]),
        ("हिन्दी है।", ["हिन्दी", "है", "।"]),
        ("  ", []),
    ],
)
def test_treebank_words(text: str, words: list[str]) -> None:
    assert list(TREEBANK(text)) == words


def test_words_of_a_corpus_decide() -> None:
    spoken = WordSplitter(["i'd", "like", "a", "flight"])
    assert spoken("I'd like, well, a flight.") == ("I'd", "like,", "well,", "a", "flight.")
    assert "no punctuation" in spoken.rules
    hyphenated = WordSplitter([".", "-", "long-term", "well-known", "word"])
    assert hyphenated("a short-term word.") == ("a", "short-term", "word", ".")
    french = WordSplitter([".", "l'", "homme"])
    assert french("l'homme dort.") == ("l'", "homme", "dort", ".")


@pytest.mark.parametrize("text", ["a" * 10_000, "." * 10_000, "a-" * 5_000, "'" * 999, "\u0301\u200d", "(((a)))."])
def test_no_character_is_lost(text: str) -> None:
    assert "".join(TREEBANK(text)) == text
