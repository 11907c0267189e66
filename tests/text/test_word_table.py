"""Word table: the words of str.split and the ids of a dictionary, whatever the text."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.text import word_table
from seqwright.text.word_table import SPACES, WordTable, count_words

VOCABULARY = ["a", "ab", "eightbyt", "ninebytes", "fifteen bytes ok".replace(" ", "-")[:15], "x" * 16, "ế", "😀", "a\0"]
IDS = {word: id for id, word in enumerate(VOCABULARY, 4)}
TABLE = WordTable(IDS, 0, np.uint16)

words = st.sampled_from(VOCABULARY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.lists(st.lists(words | st.sampled_from(SPACES), max_size=8).map("".join), min_size=1, max_size=5)


@given(texts)
def test_word_table_equals_split_and_dictionary(texts: list[str]) -> None:
    """Law: by compiled C, where there is a compiler, and by numpy."""
    expected = [IDS.get(word, 0) for text in texts for word in text.split()]
    for without_compiler in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if without_compiler:
                patch.setattr(word_table, "functions", lambda: None)
            ids, counts = TABLE.encode(texts)
        assert counts == [len(text.split()) for text in texts]
        assert ids.tolist() == expected


@pytest.mark.parametrize("group", [1, 7, 1000])
def test_groups_of_texts_change_nothing(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    texts = ["a ab", "", "\r\n", "ế 😀 a\0", " " + "x" * 16, "unknown a"]
    whole = TABLE.encode(texts)
    monkeypatch.setattr("seqwright.text.word_table.GROUP", group)
    ids, counts = TABLE.encode(texts)
    assert np.array_equal(ids, whole[0])
    assert counts == whole[1]


def test_words_with_white_space_and_empty_vocabularies() -> None:
    table = WordTable({"no\u00a0break": 5, "one": 6}, 0, np.uint16)
    assert table.encode(["no\u00a0break one"])[0].tolist() == [0, 0, 6]
    assert WordTable({}, 3, np.uint16).encode(["one two"])[0].tolist() == [3, 3]


@given(texts)
def test_words_are_counted_in_batches_as_in_one(texts: list[str]) -> None:
    expected = Counter(word for text in texts * 3 for word in text.split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqwright.text.word_table.FIRST", 5)
        patch.setattr("seqwright.text.word_table.BATCH", 9)
        assert count_words(texts * 3) == expected
