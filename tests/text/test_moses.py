"""Moses tokenization: cases by hand, and the token counts of sacremoses on Multi30k."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from seqwright.text.moses import Language, lower_tokens, normalize_punctuation, tokenize


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "A man's dog, isn't it?", "A man 's dog , isn 't it ?"),
        ("en", "Mr. Smith paid 5,300 dollars...", "Mr. Smith paid 5,300 dollars ..."),
        ("en", "It costs No. 7 (really).", "It costs No. 7 ( really ) ."),
        ("de", "Ein Mann (mit Hut) geht.", "Ein Mann ( mit Hut ) geht ."),
        ("de", "Die Nummer 10.", "Die Nummer 10."),  # read as an ordinal
        ("fr", "L'homme s'assoit.", "L' homme s' assoit ."),
        ("fr", "Le bus a.", "Le bus a ."),
        ("en", "well-known U.S. towns", "well-known U.S. towns"),
    ],
)
def test_moses_tokenize(language: Language, text: str, expected: str) -> None:
    assert tokenize(text, language) == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("„Ja“ – sagt er…", '"Ja" - sagt er...'),
        ("das ’s", "das 's"),
        ("10 % ( rund )", "10% (rund)"),
        ("a\u00a0!", "a!"),
    ],
)
def test_moses_normalize_punctuation(text: str, expected: str) -> None:
    assert normalize_punctuation(text, "de") == expected


@pytest.mark.parametrize(("language", "expected"), [("de", 12_103), ("en", 12_968), ("fr", 13_988)])
def test_moses_token_counts_on_multi30k(data_root: Path, language: Language, expected: int) -> None:
    packed = (data_root / f"multi30k/test_2016_flickr.{language}.xz").read_bytes()
    lines = lzma.decompress(packed).decode().removesuffix("\n").split("\n")
    assert sum(len(lower_tokens(line, language).split()) for line in lines) == expected
