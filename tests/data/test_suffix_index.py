"""Suffix index: sorted suffixes and longest matches equal brute force; the index on disk is that of its text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.data.text import suffix_index
from seqwright.data.text.corpora import to_stream
from seqwright.data.text.corpus import Document, file_corpus, first_lines, read_corpus, split
from seqwright.data.text.origins import Origins
from seqwright.data.text.suffix_array import suffix_array
from seqwright.data.text.suffix_index import (
    IndexedText,
    LineCounter,
    Match,
    SuffixIndex,
    build_index,
    line_places,
    open_index,
)
from seqwright.text.trainers import TokenizerConfig, train

texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)
NOWHERE = Origins((), np.zeros((0, 2), np.int64))


def index_of(text: list[int], block: int) -> SuffixIndex:
    ids = np.array(text, np.uint16)
    suffixes = [suffix_array(ids[n : n + block]) for n in range(0, len(ids), block)]
    return SuffixIndex(ids, np.concatenate(suffixes), np.zeros(1, np.int64), NOWHERE, block)


def occurs(part: list[int], text: list[int]) -> bool:
    return any(text[n : n + len(part)] == part for n in range(len(text) - len(part) + 1))


def brute_force(query: list[int], text: list[int]) -> list[tuple[int, int]]:
    """(start, length) of the maximal matches."""
    found, reached = [], 0
    for start in range(len(query)):
        end = max(end for end in range(start, len(query) + 1) if occurs(query[start:end], text))
        if end > max(reached, start):
            found.append((start, end - start))
        reached = max(reached, end)
    return found


@given(text=texts)
def test_suffix_array_is_sorted(text: list[int]) -> None:
    assert suffix_array(np.array(text, np.uint16)).tolist() == sorted(range(len(text)), key=lambda n: text[n:])


@given(text=texts, query=st.lists(st.integers(-1, 2), max_size=25), block=st.integers(1, 45), limit=st.integers(1, 6))
def test_matches_equal_brute_force(text: list[int], query: list[int], block: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_index, "LIMIT", limit)
        matches = index_of(text, block).matches(query)
    assert [(match.start, match.length) for match in matches] == brute_force(query, text)
    for match in matches:
        copied = query[match.start : match.end]
        assert text[match.position : match.position + match.length] == copied
        places = [n for n in range(len(text)) if text[n : n + match.length] == copied]
        assert index_of(text, block).count(copied) == len(places)


@pytest.mark.parametrize("block", [50, 10_000])
def test_long_copies_are_found_across_blocks(block: int) -> None:
    text = np.random.default_rng(0).integers(0, 50, 2_000).tolist()
    query = [*text[100:900], -1, *text[1_500:]]
    assert index_of(text, block).matches(query) == [Match(0, 800, 100), Match(801, 500, 1_500)]


@pytest.mark.parametrize(
    ("text", "kind", "lines"),
    [
        ("a\nb\n\nc\n", "line", [1, 2, 3, 4]),
        ("a\nb", "line", [1, 2]),
        ("a\nb\n", "file", [1]),
        ("\n\na\nb\n \n\n\nc\n", "blank-line", [3, 8]),
        ("a\r\n\r\nb\r\n", "blank-line", [1, 3]),
    ],
)
def test_documents_have_their_first_lines(text: str, kind: Document, lines: list[int]) -> None:
    corpus = file_corpus(text, kind, "a.txt")
    assert first_lines(text, kind).tolist() == lines
    assert len(corpus.documents) == len(lines)


def test_index_on_disk_has_file_and_line_of_every_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_index, "COUNTED_IDS", 8)
    (tmp_path / "a.txt").write_bytes("một con mèo 🙂\r\nhai\r\n".encode())
    (tmp_path / "b.txt").write_text("first\nsecond line\nthird\n" * 30)
    corpus, held_out = split(read_corpus(str(tmp_path / "*.txt"), "file", errors="strict"), "tail 10%")
    tokenizer = train(TokenizerConfig(kind="characters"), corpus.documents)
    stream = to_stream(corpus, tokenizer)
    assert corpus.origins is not None
    assert held_out.origins is None
    build_index(tmp_path / "index", [IndexedText(stream, corpus.origins)], "corpus", block=16)
    index = open_index(tmp_path / "index", "corpus")
    assert index is not None
    line_ends = np.array([piece.count(b"\n") for piece in tokenizer.token_bytes])
    for text, file, line in (("mèo 🙂\nha", "a.txt", 1), ("second line\nth", "b.txt", 2), ("hird\n", "b.txt", 3)):
        (match,) = index.matches(tokenizer.encode(text))
        origin = index.origin(match.position, LineCounter(index.ids, line_ends))
        assert (Path(origin.file).name, (origin.number - 1) % 3 + 1) == (file, line)
        assert match.length == len(text)
    assert open_index(tmp_path / "index", "another corpus") is None


@pytest.mark.parametrize("kind", ["file", "blank-line"])
def test_words_without_line_ends_have_their_lines(tmp_path: Path, kind: Document) -> None:
    """A tokenizer of words drops line ends: the lines of longer documents are counted when the index is built."""
    lines = ["", "one two", "", "three four five", "", "", "six seven", "eight", "", "nine ten"]
    corpus = file_corpus("\n".join(lines) + "\n", kind, "a.txt")
    tokenizer = train(TokenizerConfig(kind="words"), corpus.documents)
    text = line_places(corpus, to_stream(corpus, tokenizer), tokenizer)
    build_index(tmp_path / "index", [text], "corpus", block=4)
    index = open_index(tmp_path / "index", "corpus")
    assert index is not None
    counter = LineCounter(index.ids, np.array([piece.count(b"\n") for piece in tokenizer.token_bytes]))
    for number, line in enumerate(lines, 1):
        for word in line.split():
            (match,) = index.matches(tokenizer.encode(word))
            assert index.origin(match.position, counter).number == number, word


def test_records_of_several_lines_keep_their_number(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one two\\nthree"}\n{"text": "four\\nfive six"}\n')
    corpus = read_corpus(str(tmp_path / "a.jsonl"), "file", errors="strict", columns=("text",))
    tokenizer = train(TokenizerConfig(kind="words"), corpus.documents)
    text = line_places(corpus, to_stream(corpus, tokenizer), tokenizer)
    assert set(text.origins.places[:, 1].tolist()) == {1, 2}


@pytest.mark.parametrize("name", ["ids.bin", "suffixes.bin", "documents.bin", "index.json"])
def test_damaged_index_is_not_opened(tmp_path: Path, name: str) -> None:
    corpus = file_corpus("a b c\n" * 5, "line", "a.txt")
    tokenizer = train(TokenizerConfig(kind="words"), corpus.documents)
    assert corpus.origins is not None
    build_index(tmp_path / "index", [IndexedText(to_stream(corpus, tokenizer), corpus.origins)], "corpus")
    assert open_index(tmp_path / "index", "corpus") is not None
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[:-3])
    assert open_index(tmp_path / "index", "corpus") is None
