"""Running text is split into words as a corpus has them."""

from __future__ import annotations

import unicodedata

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


VIETNAMESE = (
    *("Hà Nội", "học sinh", "sinh viên", "thành phố", "thành phố Hồ Chí Minh", "TP. Hồ Chí Minh"),
    *("học", "đi", "El País", ".", ","),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Học sinh đi Hà Nội.", ["Học sinh", "đi", "Hà Nội", "."]),
        ("học sinh viên", ["học sinh", "viên"]),  # greedily from the left
        ("Thành phố Hồ Chí Minh, THÀNH PHỐ", ["Thành phố Hồ Chí Minh", ",", "THÀNH PHỐ"]),
        ("đi TP. Hồ Chí Minh.", ["đi", "TP. Hồ Chí Minh", "."]),
        ("Học, sinh el país", ["Học", ",", "sinh", "el", "país"]),
        ("Hà_Nội, a_b@x.vn", ["Hà Nội", ",", "a_b@x.vn"]),
        ("Đà Nẵng", ["Đà", "Nẵng"]),  # unknown
        (unicodedata.normalize("NFD", "Hà Nội"), ["Hà Nội"]),
    ],
)
@pytest.mark.parametrize("separator", [" ", "_"])
def test_known_words_of_several_syllables_are_joined(text: str, words: list[str], separator: str) -> None:
    splitter = WordSplitter([word.replace(" ", separator) for word in VIETNAMESE])
    assert list(splitter(text)) == [word.replace(" ", separator) for word in words]
    rule = f"64 % of the training words contain {'a space' if separator == ' ' else 'an underscore'}, as in 'Hà"
    assert rule in splitter.rules


def test_segmented_text_has_underscores_for_spaces() -> None:
    assert WordSplitter(VIETNAMESE).at_spaces("Đà_Nẵng đẹp.") == ("Đà Nẵng", "đẹp.")
    underscored = WordSplitter([word.replace(" ", "_") for word in VIETNAMESE])
    assert underscored.at_spaces("Đà_Nẵng đẹp.") == ("Đà_Nẵng", "đẹp.")
    assert TREEBANK.at_spaces("a_b c.") == ("a_b", "c.")


@pytest.mark.parametrize(
    "words",
    [
        ["def", "self", ".", "read_text", "is_file", "__init__", "_x", '"a text"', "# a comment"],  # a program
        [*map(str, range(300)), ".", "ENW_GCP"],  # file names among words
    ],
)
def test_other_underscores_join_nothing(words: list[str]) -> None:
    splitter = WordSplitter(words)
    assert splitter("read text ENW GCP a text") == ("read", "text", "ENW", "GCP", "a", "text")
    assert "training words contain" not in splitter.rules


@pytest.mark.parametrize("text", ["a" * 10_000, "." * 10_000, "a-" * 5_000, "'" * 999, "\u0301\u200d", "(((a)))."])
def test_no_character_is_lost(text: str) -> None:
    assert "".join(TREEBANK(text)) == text
