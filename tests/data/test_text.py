"""Text corpora: documents and splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seqwright.core.config import UserError
from seqwright.data.text.corpus import Corpus, Document, TextConfig, document_kind, documents_of, read_corpus, split


def lines(count: int) -> Corpus:
    return Corpus(documents=[f"line {number}" for number in range(count)], kind="line")


def test_lines_end_at_line_feeds_only() -> None:
    assert documents_of("a\r\n\nb\u2028c\x85\rd\n", "line") == ["a", "", "b\u2028c\x85\rd"]
    assert documents_of("a\nb", "line") == ["a", "b"]


def test_paragraphs_are_separated_by_blank_lines() -> None:
    assert documents_of("\n\na\nb\r\n\r\n \t\n  c\n", "blank-line") == ["a\nb", "  c"]


def test_a_file_is_one_document() -> None:
    assert documents_of("a\r\n\nb\n", "file") == ["a\r\n\nb\n"]


def test_characters_of_a_corpus_are_those_of_its_file(tmp_path: Path) -> None:
    for text in ("ế\nb\n\nc\n", "a\n\nb", "a\n\nb\n\n"):
        (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
        for kind in ("line", "file", "blank-line"):
            corpus = read_corpus("a.txt", kind, base=tmp_path, errors="strict")  # type: ignore[arg-type]
            assert corpus.exact
            assert corpus.characters == len(text)


@pytest.mark.parametrize("rule", ["tail 30%", "documents 40%"])
def test_a_split_loses_no_character(rule: str, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{name}\nb\n\nc\nd\nno end of {name}", newline="")
    corpus = read_corpus(["a.txt", "b.txt"], "line", base=tmp_path, errors="strict")
    train, valid = split(corpus, rule)
    assert train.characters + valid.characters == corpus.characters == 2 * len("a.txt\nb\n\nc\nd\nno end of a.txt")
    line = Corpus(documents=["0123456789"], kind="line", unended={0: 1})
    assert [part.characters for part in split(line, "tail 30%")] == [7, 3]


def test_notes_about_decoding_errors_and_crlf(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\xff")
    corpus = read_corpus(["a.txt"], "line", base=tmp_path, errors="replace")
    assert corpus.documents == ["a", "b\ufffd"]
    assert ["1 decoding errors" in corpus.notes[0], "CRLF" in corpus.notes[1]] == [True, True]


@pytest.mark.parametrize("kind", ["file", "line", "blank-line"])
def test_crlf_is_read_as_lf_and_scored_as_lf(kind: Document, tmp_path: Path) -> None:
    (tmp_path / "lf.txt").write_bytes(b"a\nb\n\nc\n")
    (tmp_path / "crlf.txt").write_bytes(b"a\r\nb\r\n\r\nc\r\n")
    lf, crlf = (read_corpus([f"{name}.txt"], kind, base=tmp_path, errors="strict") for name in ("lf", "crlf"))
    assert crlf == replace(lf, notes=crlf.notes)
    assert crlf.exact


def test_tail_split_holds_out_the_last_documents() -> None:
    train, valid = split(lines(100), "tail 7%")
    assert [*train.documents, *valid.documents] == lines(100).documents
    assert len(valid.documents) == 7


def test_tail_split_of_a_few_files_holds_out_the_last_characters_of_each() -> None:
    few = Corpus(documents=["0123456789", "abcdefghij", "ABCDEFGHIJ"], kind="file")
    train, valid = split(few, "tail 20%")
    assert (train.documents, valid.documents) == (["01234567", "abcdefgh", "ABCDEFGH"], ["89", "ij", "IJ"])
    train, valid = split(few, "tail 34%")
    assert (len(train.documents), valid.documents) == (1, ["abcdefghij", "ABCDEFGHIJ"])


def test_tail_split_of_one_document_holds_out_its_last_characters() -> None:
    train, valid = split(Corpus(documents=["0123456789"], kind="file"), "tail 25%")
    assert (train.documents, valid.documents) == (["0123456"], ["789"])


def test_documents_split_is_by_hash_of_the_text() -> None:
    corpus = lines(1000)
    train, valid = split(corpus, "documents 5%")
    assert sorted([*train.documents, *valid.documents]) == sorted(corpus.documents)
    assert 30 < len(valid.documents) < 70
    backwards = Corpus(documents=[*corpus.documents[::-1], *corpus.documents], kind="line")
    assert set(split(backwards, "documents 5%")[1].documents) == set(valid.documents)


@pytest.mark.parametrize("rule", ["tail", "tail 10", "tail 0%", "tail 100%", "head 10%", "tail  5%"])
def test_an_invalid_split_rule_is_refused(rule: str) -> None:
    with pytest.raises(UserError, match="tail 5%"):
        TextConfig(train="a", split=rule)


def test_a_split_with_an_empty_side_is_refused() -> None:
    with pytest.raises(UserError, match=r"leaves one side empty.*data\.valid"):
        split(Corpus(documents=["one"], kind="file"), "documents 5%")
    with pytest.raises(UserError, match="leaves one side empty"):
        split(Corpus(documents=["x"], kind="file"), "tail 10%")


def test_contradictory_settings_are_refused() -> None:
    with pytest.raises(UserError, match="keep one"):
        TextConfig(train="a", valid="b", split="tail 10%")
    with pytest.raises(UserError, match="train names no file"):
        TextConfig(train=())
    with pytest.raises(UserError, match="valid names no file"):
        TextConfig(train="a", valid=())


def test_document_unit_depends_on_the_tokenizer() -> None:
    assert document_kind(TextConfig(train="a"), "words") == "line"
    assert document_kind(TextConfig(train="a"), "characters") == "file"
    assert document_kind(TextConfig(train="a", document="blank-line"), "words") == "blank-line"
