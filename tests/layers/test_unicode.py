"""Letters of every script are of the kind that Unicode says, and have the small form of their language."""

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
    ("kind", "letters"),
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
def test_kinds(kind: int, letters: str) -> None:
    for letter in letters:
        assert character_classes()[ord(letter) + 1] == kind, letter


def test_small_forms_are_those_of_the_language_s_own_rules() -> None:
    def small(word: str) -> str:
        return "".join(chr(ord(letter) + lowercase_offsets()[ord(letter) + 1]) for letter in word)

    for word in ("WORLD", "ÜBUNG", "STRAẞE", "МОСКВА", "ĐƯỜNG", "ՀԱՅ", "𐐀𐐁", "ＷＩＤＥ", "قلم", "１２"):
        assert small(word) == small(word.lower()) == word.lower()
    assert small("ΟΔΟΣ") == small("οδος") == "οδοσ"  # both sigmas are one
    assert small("İI") == "ii"  # a letter stays one letter
    assert small("[@{`") == "[@{`"  # the neighbors of Z and A are no letters


def test_nothing_is_shifted_behind_the_tables_or_where_no_letter_is() -> None:
    assert len(character_classes()) == len(lowercase_offsets()) == TABLE_SIZE + 2
    assert (character_classes()[0], character_classes()[-1]) == (IGNORED, CASELESS)
    assert lowercase_offsets()[0] == lowercase_offsets()[-1] == 0
    assert all(chr(code).lower() == chr(code) for code in range(TABLE_SIZE, 0x110000))
