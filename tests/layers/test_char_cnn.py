"""Character CNN, affix embeddings and word shape: a word's vector depends on its spelling alone."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from seqwright.data.tagged.sentences import char_codes
from seqwright.layers.affix_embedding import BUCKETS, PREFIXES, SUFFIXES, AffixEmbedding, fnv1a, word_shape
from seqwright.layers.char_cnn import CHAR_BUCKETS, CharCNN
from seqwright.layers.unicode import character_classes


def code_points(*words: str, length: int | None = None) -> torch.Tensor:
    spelled = torch.from_numpy(char_codes(words).astype("int64"))
    return spelled[:, : length or max(map(len, words))]


def test_char_cnn_vector_is_independent_of_position_and_padding() -> None:
    torch.manual_seed(0)
    layer = CharCNN(6, 4).double()
    words = code_points("a", "Übung", "running", "a", "7-UP")
    rows = torch.zeros(2, 4, words.size(1), dtype=torch.long)
    rows[0, 1:4], rows[1, :2] = words[:3], words[3:]
    vectors = layer(rows)
    assert not vectors[0, 0].any()
    assert not vectors[1, 2:].any()
    assert_close(vectors[0, 1], vectors[1, 0])
    for row, place, word in ((0, 1, "a"), (0, 2, "Übung"), (0, 3, "running"), (1, 1, "7-UP")):
        assert_close(layer(code_points(word)[None])[0, 0], vectors[row, place])
        assert_close(layer(code_points(word, length=20)[None])[0, 0], vectors[row, place])
    vectors.sum().backward()
    assert layer.letters.weight.grad is not None


def test_char_cnn_is_zero_without_words() -> None:
    assert not CharCNN(6, 4)(torch.zeros(2, 3, 5, dtype=torch.long)).any()


def test_affix_embedding_is_shared_by_words_with_the_same_affix() -> None:
    layer = AffixEmbedding(2)
    one, two = layer(code_points("Walking", "talking")).view(2, -1, 2)
    alike = [bool(torch.equal(a, b)) for a, b in zip(one, two, strict=True)]
    # Prefixes of 1, 2, 3 differ; suffixes are the same; lower-cased words and shapes differ.
    assert alike == [False] * len(PREFIXES) + [True] * len(SUFFIXES) + [False, False]
    assert layer.table.num_embeddings == BUCKETS * len(alike)


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
def test_affix_prefixes_are_cased_and_suffixes_lower_cased(words: tuple[str, str], alike: str) -> None:
    """Prefixes of 1 to 3, suffixes of 1 to 4, the word lower-cased, its shape."""
    torch.manual_seed(0)
    one, two = AffixEmbedding(2)(code_points(*words)).view(2, -1, 2)
    assert (one == two).all(1).tolist() == [mark == "1" for mark in alike.replace(" ", "")]


def test_char_cnn_pools_over_every_window_that_touches_the_word() -> None:
    torch.manual_seed(0)
    layer = CharCNN(6, 4).double()
    word = code_points("running")
    padded = layer.letters(torch.nn.functional.pad(word, (2, 2))).transpose(1, 2)
    pooled = [filters(padded).relu().amax(-1) for filters in layer.filters]
    expected = torch.cat([*pooled, layer.affixes(word)], -1) @ layer.out.weight.T
    for length in (7, 20):
        assert_close(layer(code_points("running", length=length)[None])[0], expected)


def test_fnv1a_hash_spreads_and_ignores_padding() -> None:
    words = code_points(*(f"w{n}" for n in range(3000)), length=8)
    keys = fnv1a(words)
    assert torch.equal(keys, fnv1a(words[:, :5]))
    assert len(keys.unique()) == 3000
    filled = len(keys.remainder(BUCKETS).unique())
    assert 1900 < filled < 2300  # expected of a random hash: BUCKETS · (1 - exp(-3000 / BUCKETS)) = 2127


def test_word_shape_bits_of_character_classes() -> None:
    def shapes(*words: str, length: int | None = None) -> torch.Tensor:
        spelled = code_points(*words, length=length)
        return word_shape(spelled, torch.from_numpy(character_classes())[spelled])

    words = ["Word", "word", "WORD", "WoRd", "123", "12a", "x-y", "a.b", "語", "🎈", "!"]
    assert len(shapes(*words).unique()) == len(words)
    bits = {"A": "101", "Az": "1001", "aZ": "1010", "AZ": "111", "90": "110000", ".": "100000000", "a-": "10001000"}
    for word, expected in bits.items():
        assert shapes(word, length=5).item() == int(expected, 2), word
    signs = {"٣٤": "110000", "a–": "10001000", "n’t": "1000", "🎈": "10000000000"}
    beyond = {"Д": "1000101", "Яг": "1001001", "éÉ": "1001010", "П\u0301Д": "1000111", "語": "1001000000"}
    for word, expected in (signs | beyond).items():
        assert shapes(word, length=5).item() == int(expected, 2), word


@pytest.mark.parametrize("others", [range(0x430, 0x44A), range(0x30A1, 0x30BB), range(0x10428, 0x10442)])
def test_char_cnn_is_invariant_to_a_renaming_of_letters(others: range) -> None:
    """With a to z replaced by Cyrillic, katakana or Deseret letters, and their embeddings by those of a to z."""
    torch.manual_seed(0)
    words = ["a", "walk", "walked", "talking", "walks", "strengths"]
    renamed = [word.translate(dict(zip(range(ord("a"), ord("z") + 1), others, strict=True))) for word in words]
    layer = CharCNN(6, 4).double()
    one, two = (layer.affixes(code_points(*spelled)).view(len(words), -1, 32) for spelled in (words, renamed))
    assert torch.equal(
        (one[:, None] == one).all(-1), (two[:, None] == two).all(-1)
    )  # the same words share the same features
    with torch.no_grad():
        layer.out.weight[:, -layer.affixes.width :] = 0
        before = layer(code_points(*words)[None])
        layer.letters.weight[[other % CHAR_BUCKETS + 1 for other in others]] = layer.letters.weight[ord("a") + 1 :][
            :26
        ].clone()
        assert_close(layer(code_points(*renamed)[None]), before, rtol=0, atol=0)
