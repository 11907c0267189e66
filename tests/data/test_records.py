"""Records: columns by name or number, and errors that name file, line and content."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from seqwright.core.config import UserError
from seqwright.data.records import QUOTING_LINES, is_quoted, records
from seqwright.data.text.corpora import read_corpora
from seqwright.data.text.corpus import TextConfig, read_corpus


def read(name: str, text: str, *columns: str) -> list[tuple[str, ...]]:
    return list(records(text, Path(name), columns))


def test_columns_by_name_or_number() -> None:
    assert read("a.jsonl", '{"t": "x\\ny", "n": 1}\n{"n": 2, "t": ""}\n', "t") == [("x\ny",), ("",)]
    assert read("a.csv", 'text,label\r\n"a, ""b""\nc",1\r\nd,0\r\n', "label", "text") == [
        ("1", 'a, "b"\nc'),
        ("0", "d"),
    ]
    assert read("a.tsv", '1\t9\tsay "hi"\n0\t2\ttab\there\n', "3", "1") == [('say "hi"', "1"), ("tab\there", "0")]


def test_a_header_is_one_whether_columns_have_names_or_numbers() -> None:
    assert read("a.csv", "id,body\n1,x\n2,y\n", "2") == read("a.csv", "id,body\n1,x\n2,y\n", "body") == [("x",), ("y",)]
    assert read("a.csv", "3,x\n4,y\n", "2") == [("x",), ("y",)]
    assert read("a.csv", "class,x\n4,y\nclass,z\n", "2") == [("x",), ("y",), ("z",)]  # a class, which recurs
    assert read("a.csv", "n,n,body\n1,2,x\n", "body", "2") == [("x", "2")]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_quoted_tsv_files_are_those_of_pandas(quoting: Any) -> None:
    rows = [("text", "n"), ('say "a"', 1), ("two\nlines,\tand more", 2), ("plain", 3)]
    file = io.StringIO()
    csv.writer(file, delimiter="\t", lineterminator="\n", quoting=quoting).writerows(rows)
    assert read("a.tsv", file.getvalue(), "text") == [(str(text),) for text, _ in rows[1:]]


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('"a"\tb\n', True),
        ('"a ""b"""\tc\nd\te\n', True),
        ('"a\nb"\tc\nd\te\n', True),
        ("a\tb\n", False),
        ('a "b"\tc\n', False),
        ('"a" b\tc\n', False),
        ('"a\tb\n', False),
        ('"\tPUNCT\nword\tNOUN\n"\tPUNCT\n', False),  # a quote as a cell
        ('"a"\tb\n"c\td\n', False),
    ],
)
def test_quoting_of_tsv_is_told_from_quotes_in_texts(text: str, quoted: bool) -> None:
    assert is_quoted(text) is quoted


def test_a_quoted_cell_may_be_cut_off_with_the_lines_that_are_looked_at() -> None:
    assert is_quoted('"a"\tb\n"c\n', cut=True)
    assert not is_quoted('a\tb\n"c\n', cut=True)  # no quoted cell yet
    assert is_quoted('"a"\tb\n' * QUOTING_LINES + '"c\n')


def test_a_field_of_ten_megabytes_is_read() -> None:
    long = "x" * 10_000_000
    assert read("a.csv", f"text\n{long}\n", "text") == [(long,)]
    assert read("a.jsonl", f'{{"text": "{long}"}}', "text") == [(long,)]


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": "b", "text": "c"}',
            "text",
            r"a\.jsonl, line 2 .*duplicate key 'text'",
        ),
        ("a.jsonl", '{"txt": "a"}', "text", r"line 1 has no key 'text'. Did you mean 'txt'"),
        ("a.jsonl", '{"text": 3}', "text", "'text' is 3, not a string"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b"}', "text", "line 2 is empty"),
        ("a.jsonl", "plain text", "text", r"line 1 is no JSON object.*Found: 'plain text'"),
        ("a.jsonl", "[1]", "text", r"holds \[1\], not an object"),
        ("a.csv", "text;label\na;1\n", "text", r"has no column 'text'.*1 comma-separated.*separated by semicolons"),
        ("a.csv", "text,text\na,b\n", "text", "the header names 2 columns 'text', 1 and 2; select"),
        (
            "a.csv",
            "text,label\na,1\nb\n",
            "text",
            r"a\.csv, line 3 has 1 .*column: 'b', where the first line has 2",
        ),
        ("a.csv", 'text\n"open\nx\n', "text", r"line 2 opens a quote"),
        ("a.csv", 'text\n"open\nx\n"y"\n', "text", r"line 4 is no CSV.*starts at line 2: is a quote not closed"),
        ("a.tsv", "a,b\nc,d\n", "2", r"line 1 has 1 tab-separated .*by commas.*asks for 2"),
        ("a.tsv", "a\tb\nc\n", "2", "line 2 has 1"),
    ],
)
def test_malformed_records_are_errors_with_their_line(name: str, text: str, column: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(name, text, column)


def test_folders_and_glob_patterns_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.md", "deep/c.txt", ".hidden.txt", "photo.jpg"):
        (tmp_path / name).write_text(name)
    folder = read_corpus(str(tmp_path), "file", errors="strict")
    assert folder.documents == ["a.md", "b.txt", "deep/c.txt"]
    assert "1 files with other suffixes are skipped (photo.jpg)" in folder.notes[0]
    assert read_corpus(str(tmp_path / "*.txt"), "file", errors="strict").documents == [".hidden.txt", "b.txt"]
    assert read_corpus(str(tmp_path / "**/c.*"), "file", errors="strict").documents == ["deep/c.txt"]
    with pytest.raises(UserError, match="no file"):
        read_corpus(str(tmp_path / "*.xyz"), "file", errors="strict")


def test_each_record_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo"}\n{"text": "three"}\n')
    config = TextConfig(train=str(tmp_path / "a.jsonl"), columns=("text",))
    assert read_corpora(config, "line").texts == ["one\ntwo", "three"]
    with pytest.raises(UserError, match=r"name the text column: --columns text=NAME"):
        read_corpora(TextConfig(train=str(tmp_path / "a.jsonl")), "line")
