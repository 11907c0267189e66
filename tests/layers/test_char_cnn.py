"""The letters of words as vectors: each word's own, whatever stands beside it."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.data.tagged.sentences import char_codes
from seqwright.layers.affix_embedding import PREFIXES, ROWS, SUFFIXES, Affixes, hashed, shape
from seqwright.layers.char_cnn import LETTERS, CharCNN
from seqwright.layers.unicode import kinds


def letters(*words: str, room: int | None = None) -> torch.Tensor:
    spelled = torch.from_numpy(char_codes(words).astype("int64"))
    return spelled[:, : room or max(map(len, words))]


def test_a_word_has_one_vector_wherever_it_stands() -> None:
    torch.manual_seed(0)
    layer = CharCNN(6, 4).double()
    words = letters("a", "Übung", "running", "a", "7-UP")
    rows = torch.zeros(2, 4, words.size(1), dtype=torch.long)
    rows[0, 1:4], rows[1, :2] = words[:3], words[3:]
    found = layer(rows)
    assert not found[0, 0].any()
    assert not found[1, 2:].any()
    assert_close(found[0, 1], found[1, 0])
    for row, place, word in ((0, 1, "a"), (0, 2, "Übung"), (0, 3, "running"), (1, 1, "7-UP")):
        assert_close(layer(letters(word)[None])[0, 0], found[row, place])
        assert_close(layer(letters(word, room=20)[None])[0, 0], found[row, place])
    found.sum().backward()
    assert layer.letters.weight.grad is not None


def test_rows_without_words_are_zeros() -> None:
    assert not CharCNN(6, 4)(torch.zeros(2, 3, 5, dtype=torch.long)).any()


def test_affixes_share_what_they_share() -> None:
    layer = Affixes(2)
    one, two = layer(letters("Walking", "talking")).view(2, -1, 2)
    alike = [bool(torch.equal(a, b)) for a, b in zip(one, two, strict=True)]
    # prefixes of 1, 2, 3 differ; suffixes are the same; the words and their shapes differ.
    assert alike == [False] * len(PREFIXES) + [True] * len(SUFFIXES) + [False, False]
    assert layer.table.num_embeddings == ROWS * len(alike)


@pytest.mark.parametrize(
    ("words", "alike"),
    [
        (("walked", "walking"), "111 0000 0 1"),
        (("bat", "at"), "000 1100 0 1"),
        (("ZOO", "zoo"), "000 1111 1 0"),
        (("AA", "aa"), "000 1111 1 0"),
        (("in", "I"), "000 0000 0 0"),
    ],
)
def test_prefixes_keep_their_case_and_suffixes_do_not(words: tuple[str, str], alike: str) -> None:
    """Prefixes of 1 to 3, suffixes of 1 to 4, the word lower-cased, its shape."""
    torch.manual_seed(0)
    one, two = Affixes(2)(letters(*words)).view(2, -1, 2)
    assert (one == two).all(1).tolist() == [mark == "1" for mark in alike.replace(" ", "")]


def test_a_filter_answers_for_every_window_that_touches_the_word() -> None:
    torch.manual_seed(0)
    layer = CharCNN(6, 4).double()
    word = letters("running")
    around = layer.letters(torch.nn.functional.pad(word, (2, 2))).transpose(1, 2)
    largest = [filters(around).relu().amax(-1) for filters in layer.filters]
    expected = torch.cat([*largest, layer.affixes(word)], -1) @ layer.out.weight.T
    for room in (7, 20):
        assert_close(layer(letters("running", room=room)[None])[0], expected)


def test_hashes_spread_and_ignore_padding() -> None:
    words = letters(*(f"w{n}" for n in range(3000)), room=8)
    keys = hashed(words)
    assert torch.equal(keys, hashed(words[:, :5]))
    assert len(keys.unique()) == 3000
    filled = len(keys.remainder(ROWS).unique())
    assert 1900 < filled < 2300  # ROWS · (1 - exp(-3000 / ROWS)) = 2127 by chance


def test_shapes_tell_kinds_of_letters() -> None:
    def seen(*words: str, room: int | None = None) -> torch.Tensor:
        spelled = letters(*words, room=room)
        return shape(spelled, torch.from_numpy(kinds())[spelled])

    words = ["Word", "word", "WORD", "WoRd", "123", "12a", "x-y", "a.b", "語", "🎈", "!"]
    assert len(seen(*words).unique()) == len(words)
    bits = {"A": "101", "Az": "1001", "aZ": "1010", "AZ": "111", "90": "110000", ".": "100000000", "a-": "10001000"}
    for word, wanted in bits.items():
        assert seen(word, room=5).item() == int(wanted, 2), word
    signs = {"٣٤": "110000", "a–": "10001000", "n’t": "1000", "🎈": "10000000000"}
    beyond = {"Д": "1000101", "Яг": "1001001", "éÉ": "1001010", "П\u0301Д": "1000111", "語": "1001000000"}
    for word, wanted in (signs | beyond).items():
        assert seen(word, room=5).item() == int(wanted, 2), word


@pytest.mark.parametrize("others", [range(0x430, 0x44A), range(0x30A1, 0x30BB), range(0x10428, 0x10442)])
def test_letters_by_other_names_are_looked_at_as_before(others: range) -> None:
    """Cyrillic, katakana and Deseret letters in place of a to z, and their vectors in place of those."""
    torch.manual_seed(0)
    words = ["a", "walk", "walked", "talking", "walks", "strengths"]
    renamed = [word.translate(dict(zip(range(ord("a"), ord("z") + 1), others, strict=True))) for word in words]
    layer = CharCNN(6, 4).double()
    one, two = (layer.affixes(letters(*some)).view(len(words), -1, 32) for some in (words, renamed))
    assert torch.equal((one[:, None] == one).all(-1), (two[:, None] == two).all(-1))  # who shares what with whom
    with torch.no_grad():
        layer.out.weight[:, -layer.affixes.width :] = 0
        before = layer(letters(*words)[None])
        layer.letters.weight[[other % LETTERS + 1 for other in others]] = layer.letters.weight[ord("a") + 1 :][
            :26
        ].clone()
        assert_close(layer(letters(*renamed)[None]), before, rtol=0, atol=0)
