"""Character classes and lower-case offsets of letters in every script follow Unicode."""

from __future__ import annotations

import pytest

from seqwright.layers.unicode import (
    CASELESS,
    DASH,
    DIGIT,
    IGNORED,
    LOWER,
    OTHER,
    PERIOD,
    SYMBOL,
    TABLE_SIZE,
    UPPER,
    character_classes,
    lowercase_offsets,
)


@pytest.mark.parametrize(
    ("character_class", "characters"),
    [
        (LOWER, "azéßяσςıა"),
        (UPPER, "AZÉẞЯΣİǅᎠ"),
        (CASELESS, "אقกあ語한ा"),
        (DIGIT, "09٣३½Ⅷ"),
        (DASH, "-–—‑"),
        (PERIOD, ".。．"),
        (SYMBOL, "🎈☺©"),
        (IGNORED, "\u0301\u200d\ufe0f्"),
        (OTHER, "!,“”؟、।$+"),
    ],
)
def test_character_classes(character_class: int, characters: str) -> None:
    for char in characters:
        assert character_classes()[ord(char) + 1] == character_class, char


def test_lowercase_offsets_equal_str_lower() -> None:
    def lower(word: str) -> str:
        return "".join(chr(ord(letter) + lowercase_offsets()[ord(letter) + 1]) for letter in word)

    for word in ("WORLD", "ÜBUNG", "STRAẞE", "МОСКВА", "ĐƯỜNG", "ՀԱՅ", "𐐀𐐁", "ＷＩＤＥ", "قلم", "１２"):
        assert lower(word) == lower(word.lower()) == word.lower()
    assert lower("ΟΔΟΣ") == lower("οδος") == "οδοσ"  # both sigmas fold to one
    assert lower("İI") == "ii"  # one character maps to one
    assert lower("[@{`") == "[@{`"  # the neighbors of Z and A have no case


def test_lowercase_offsets_are_zero_beyond_the_table_and_at_padding() -> None:
    assert len(character_classes()) == len(lowercase_offsets()) == TABLE_SIZE + 2
    assert (character_classes()[0], character_classes()[-1]) == (IGNORED, CASELESS)
    assert lowercase_offsets()[0] == lowercase_offsets()[-1] == 0
    assert all(chr(code).lower() == chr(code) for code in range(TABLE_SIZE, 0x110000))
