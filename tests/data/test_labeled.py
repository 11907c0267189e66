"""Labeled files: every way they are written, what is refused with its line, and splits that keep the classes."""

from __future__ import annotations

import csv
import importlib.util
import lzma
import sys
from collections import Counter
from pathlib import Path

import pytest

from seqwright.core.batch import OutputSpec
from seqwright.core.config import UserError
from seqwright.data.labeled.labels import Labels, several
from seqwright.data.labeled.rows import LabeledConfig, Row, Rows, read_rows, read_texts
from seqwright.pipeline.recipe import load


def read(path: Path, **options: object) -> list[tuple[str, ...]]:
    rows = read_rows(str(path), LabeledConfig(train=str(path), **options)).rows  # type: ignore[arg-type]
    return [(row.label, *row.texts) for row in rows]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
    return path


SAME = [("good", "a fine, fine film"), ("bad", 'a "dull" one')]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.tsv", 'good\ta fine, fine film\nbad\ta "dull" one\n', {}),
        ("a.txt", 'good\ta fine, fine film\r\nbad\ta "dull" one\r\n\r\n', {}),
        ("a.tsv.xz", 'label\ttext\ngood\ta fine, fine film\nbad\ta "dull" one', {}),
        ("a.tsv", '\ufeffText\tLabel\na fine, fine film\tgood\na "dull" one\tbad\n', {}),
        ("a.tsv", 'sentence\tlabel\na fine, fine film\tgood\na "dull" one\tbad\n', {}),
        ("a.csv", 'mood,text\ngood,"a fine, fine film"\nbad,"a ""dull"" one"\n', {}),
        ("a.csv", 'good,"a fine, fine film"\nbad,"a ""dull"" one"\n', {}),
        ("a.csv", 'label,text\ngood,"a fine, fine film"\nbad,"a ""dull"" one"\n', {}),
        (
            "a.jsonl",
            '{"label": "good", "text": "a fine, fine film"}\n{"text": "a \\"dull\\" one", "label": "bad"}\n',
            {},
        ),
        ("a.txt", 'good a fine, fine film\nbad a "dull" one\n', {"separator": " "}),
        ("a.txt", '__label__good a fine, fine film\n__label__bad a "dull" one\n', {}),
        ("a.csv", 'id,Review,Sentiment\n7,"a fine, fine film",good\n8,"a ""dull"" one",bad\n', {}),
        ("a.csv", 'text;label\na fine, fine film;good\n"a ""dull"" one";bad\n', {}),
        ("a.csv", 'id;text;label\n1;a fine, fine film;good\n2;a "dull" one;bad\n', {"columns": ("label", "text")}),
        ("a.csv", 'good;a fine, fine film\nbad;"a ""dull"" one"\n', {}),
        ("a.csv", ',text,label\n0,"a fine, fine film",good\n1,"a ""dull"" one",bad\n', {}),
        ("a.txt", 'text,label\n"a fine, fine film",good\n"a ""dull"" one",bad\n', {}),
        ("a.tsv", 'intent\tutterance\n\ngood\ta fine, fine film\n\nbad\ta "dull" one\n', {}),
        (
            "a.txt",
            '{"intent": "good", "query": "a fine, fine film"}\n{"query": "a \\"dull\\" one", "intent": "bad"}',
            {},
        ),
        ("a.tsv", 'good\t7\ta fine, fine film\nbad\t1\ta "dull" one\n', {"columns": ("1", "3")}),
        ("a.tsv", 'id\ts\tq\n1\ta fine, fine film\tgood\n2\ta "dull" one\tbad\n', {"columns": ("q", "s")}),
    ],
)
def test_the_same_rows_however_they_are_written(
    tmp_path: Path, name: str, text: str, options: dict[str, object]
) -> None:
    assert read(write(tmp_path, name, text), **options) == SAME


@pytest.mark.parametrize("heading", [True, False])
def test_labels_may_come_last_and_be_numbers(tmp_path: Path, heading: bool) -> None:
    """What is different in every row is the text; a word above numbers is their heading."""
    rows = [("0" if n % 3 else "1", f"text number {n}") for n in range(12)]
    lines = [f"{text}\t{label}" for label, text in rows]
    path = write(tmp_path, "a.tsv", "\n".join([*(["what was said\tscore"] if heading else []), *lines]))
    assert read(path) == rows
    path = write(tmp_path, "b.txt", "\n".join(f"{label} {text}" for label, text in rows))
    assert read(path) == rows


def test_a_class_that_is_called_like_a_heading_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "question\twho\ncomment\tindeed\nquestion\twhat\n")
    assert read(path) == [("question", "who"), ("comment", "indeed"), ("question", "what")]


def test_copies_with_other_labels_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tsame\nb\tsame\nb\tother\nb\tother\n")
    assert "1 texts have different labels" in read_rows(str(path), LabeledConfig(train=str(path))).notes[-1]


def test_labels_that_are_empty_or_lists_are_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "war,love\tone\nwar\ttwo\n\tthree\n\tfour\na, b\tfive\n")
    empty, lists = read_rows(str(path), LabeledConfig(train=str(path))).notes[-2:]
    assert empty.startswith("2 of 5 rows have an empty label (")
    assert "a.tsv, line 3 …" in empty
    assert lists.startswith("1 labels are lists of others ('war,love' …)")
    assert read_rows(str(path), LabeledConfig(train=str(path), labels="multi")).notes == ()
    path = write(tmp_path, "c.tsv", "Good\tone\ngood\ttwo\nbad\tthree\nGood\tfour\n")
    (told,) = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert told.startswith("'Good' and 'good' differ in case alone")
    path = write(tmp_path, "d.tsv", "tốt\tone\nto\u0302\u0301t\ttwo\nxấu\tthree\ntốt\tfour\n")
    (told,) = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert told.startswith("'tốt' is written in 2 ways")
    path = write(tmp_path, "b.tsv", "Washington, DC\tone\nParis, TX\ttwo\nWashington, DC\tthree\n")
    assert read_rows(str(path), LabeledConfig(train=str(path))).notes == ()


def test_lines_keep_their_numbers_behind_blank_ones(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tone\n\n\nb\ttwo\n")
    places = [row.place for row in read_rows(str(path), LabeledConfig(train=str(path))).rows]
    assert [place.rsplit(" ", 1)[1] for place in places] == ["1", "4"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "good\tone, two\nbad\tthree\n"),
        ("a.tsv", "one, two\nthree\n"),
        ("a.csv", 'text\n"one, two"\nthree\n'),
        ("a.csv", 'label,text\ngood,"one, two"\nbad,three\n'),
        ("a.csv", "label;text\ngood;one, two\nbad;three\n"),
        ("a.jsonl", '{"text": "one, two"}\n{"text": "three"}\n'),
    ],
)
def test_texts_are_read_with_labels_or_without(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, name, text)
    assert read_texts(path, LabeledConfig(train=str(path)), 1) == [("one, two",), ("three",)]


def test_texts_that_hold_semicolons_are_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "one; two\nthree\n")
    assert read_texts(path, LabeledConfig(train=str(path)), 1) == [("one; two",), ("three",)]


def test_blank_lines_hold_no_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "\n\n")
    with pytest.raises(UserError, match="blank lines"):
        read_texts(path, LabeledConfig(train=str(path)), 1)


def test_a_first_text_may_be_long_and_have_lines(tmp_path: Path) -> None:
    """Longer than csv reads unless told."""
    csv.field_size_limit(1000)
    long = "a\n" * 1000
    path = write(tmp_path, "a.csv", f'good,"{long}"\nbad,no\n')
    assert read(path) == [("good", long), ("bad", "no")]


def test_two_texts_and_numbers_of_json(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"y": 1, "one": "a", "two": "b"}\n{"y": true, "one": "c", "two": ""}\n')
    assert read(path, columns=("y", "one", "two")) == [("1", "a", "b"), ("true", "c", "")]


def test_lists_of_labels_are_several_and_never_one(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"label": ["x", "z"], "text": "c"}\n{"label": [], "text": "d"}\n')
    assert read(path, labels="multi") == [("x,z", "c"), ("", "d")]
    with pytest.raises(UserError, match=r'line 1: .*"several" reads such lists'):
        read(path)


def test_a_first_row_that_may_be_a_heading_is_said(tmp_path: Path) -> None:
    for first, said in (("mood,review\n", True), ("good,so fine\n", False)):
        path = write(tmp_path, "a.csv", first + "good,fine\nbad,dull\nbad,poor\n")
        notes = read_rows(str(path), LabeledConfig(train=str(path))).notes
        assert any("if it is a heading" in note for note in notes) == said


def test_a_tab_in_a_text_belongs_to_it_where_the_first_line_shows_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "0\t3\tplain\n1\t9\twith\ta tab\n")
    assert read(path, columns=("1", "3")) == [("0", "plain"), ("1", "with\ta tab")]


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("0\t3\ttext\n", {}, r"3 columns .*data\.columns=\[1,3\]"),
        ("good film\n", {}, r"no tab .*data\.separator"),
        ("__label__a __label__b film\n__label__a one\n", {}, r"line 1 has several labels.* data\.labels"),
        ("\n\r\n", {}, "blank lines"),
        ("a\tb\nalone\n", {}, "line 2"),
        ("a b\nalone\n", {"separator": " "}, "line 2"),
        ("label\ttext\n", {}, "a heading and no rows"),
        ('[{"label": "a", "text": "b"}]\n', {}, "looks like a JSON array"),
        ("a\tb\n", {"columns": ("label", "text")}, "no column 'label'"),
        ("label\ttitle\tbody\na\tb\tc\n", {}, r"3 columns \('label', 'title', 'body'\); say which"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_next_move(
    tmp_path: Path, text: str, options: dict[str, object], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        read(write(tmp_path, "a.tsv", text), **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"train": ()}, "--labeled"),
        ({"split": "head 5%"}, "stratified 5%"),
        ({"split": "tail 5%", "valid": "b"}, "keep one"),
        ({"columns": ("1",)}, "label and one text or two"),
        ({"separator": " ", "columns": ("1", "2")}, "leave columns out"),
        ({"labels": "regression", "balance": "oversample"}, "evens out classes"),
        ({"truncation": "windows", "columns": ("1", "2", "3")}, "windows of two texts"),
    ],
)
def test_settings_that_contradict_each_other(options: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        LabeledConfig(**{"train": "a", **options})  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("babel") is None, reason="needs Babel: the extra [samples]")
def test_names_and_their_languages_need_no_files() -> None:
    rows = read_rows("embedded:languages", LabeledConfig(train="embedded:languages")).rows
    assert ("vi", ("Tiếng Việt",)) in {(row.label, row.texts) for row in rows}
    assert len({row.texts for row in rows}) == len(rows) > 10_000
    assert len({row.label for row in rows}) == 16


def test_names_without_babel_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UserError, match=r"seqwright\[samples\]"):
        read_rows("embedded:languages", LabeledConfig(train="embedded:languages"))


def test_the_files_of_glue_imdb_sst_and_atis(data_root: Path) -> None:
    """Headings, byte order marks, quotes that quote nothing, tabs inside texts: as many rows as are published. Two have
    copies with other labels, which is said."""
    found = {}
    for name in ("cola", "mrpc", "rte", "glue-sst2", "sst2", "sst5", "atis-intents", "imdb-rnn"):
        data = load(name).data
        rows = read_rows(data.train, data)
        found[name] = (len(rows.rows), len({row.label for row in rows.rows}), rows.parts, len(rows.notes))
    assert found == {
        "cola": (8_551, 2, 1, 1),
        "mrpc": (3_668, 2, 2, 0),
        "rte": (2_490, 2, 2, 0),
        "glue-sst2": (67_349, 2, 1, 1),
        "sst2": (6_920, 2, 1, 0),
        "sst5": (8_544, 5, 1, 0),
        "atis-intents": (4_478, 21, 1, 0),
        "imdb-rnn": (25_000, 2, 1, 0),
    }


def test_empty_texts_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\t\nb\tword\na\t  \n")
    assert "2 of 3 texts are empty" in read_rows(str(path), LabeledConfig(train=str(path))).notes[0]


def rows_of(*labels: str) -> Rows:
    return Rows(rows=[Row(label, (f"text {n}",), f"f, line {n + 1}") for n, label in enumerate(labels)])


def test_a_stratified_split_keeps_the_share_of_every_class() -> None:
    train, valid = rows_of(*["a"] * 200, *["b"] * 40).split("stratified 10%")
    assert Counter(row.label for row in valid.rows) == {"a": 20, "b": 4}
    assert len(train.rows) == 216


def test_a_split_follows_texts_whatever_their_order_and_keeps_copies_together() -> None:
    rows = [*rows_of(*["a", "b"] * 50).rows, *rows_of(*["a", "b"] * 50).rows]
    _, one = Rows(rows=rows).split("stratified 20%")
    _, other = Rows(rows=rows[::-1]).split("stratified 20%")
    assert {row.texts for row in one.rows} == {row.texts for row in other.rows}
    assert all(count == 2 for count in Counter(row.texts for row in one.rows).values())


def test_a_rare_class_is_not_held_out_whole() -> None:
    copies = Rows(rows=[Row("b", ("the same",), "")] * 9)
    train, valid = Rows(rows=[*rows_of(*["a"] * 20, *["c"] * 3).rows, *copies.rows]).split("stratified 5%")
    assert Counter(row.label for row in valid.rows) == {"a": 1, "c": 1}
    assert {row.label for row in train.rows} == {"a", "b", "c"}


def test_a_split_of_values_or_of_the_tail_looks_at_no_classes() -> None:
    train, valid = rows_of(*map(str, range(40))).split("stratified 10%", classes=False)
    assert (len(train.rows), len(valid.rows)) == (36, 4)
    _, last = rows_of(*"abcdefghij").split("tail 20%")
    assert [row.label for row in last.rows] == ["i", "j"]


def test_a_split_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="leaves one side empty"):
        rows_of("a", "b").split("stratified 5%")


def test_labels_are_sorted_and_come_back_as_they_were_written() -> None:
    labels = Labels.of(rows_of("b", "a", "b"), "single")
    assert labels.names == ("a", "b")
    assert labels.targets(rows_of("b", "a").rows).tolist() == [1, 0]
    assert Labels.read(labels.table()) == labels
    many = Labels.of(rows_of("x, y", "", "y"), "multi")
    assert many.targets(rows_of("y,x", "").rows).tolist() == [[1, 1], [0, 0]]
    assert several(" x ,, y") == ["x", "y"]


def test_values_are_learned_as_deviations() -> None:
    labels = Labels.of(rows_of("1", "3"), "regression")
    assert (labels.mean, labels.deviation) == (2, 1)
    assert labels.targets(rows_of("4").rows).tolist() == [[2]]
    with pytest.raises(UserError, match=r"f, line 1: the label 'many' is no number"):
        labels.targets(rows_of("many").rows)


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(UserError, match="every row has the label 'a'"):
        Labels.of(rows_of("a", "a"), "single")
    with pytest.raises(UserError, match="every label is 3"):
        Labels.of(rows_of("3", "3.0"), "regression")
    with pytest.raises(UserError, match="label of their own"):
        Labels.of(rows_of(*(f"text {n}" for n in range(30))), "single")


def test_unknown_labels_are_named_with_their_line_or_counted() -> None:
    labels = Labels.of(rows_of("positive", "negative"), "single")
    strange = rows_of("positive", "Positive").rows
    with pytest.raises(UserError, match=r"f, line 2: the label 'Positive' was not learned.*Did you mean 'positive'"):
        labels.targets(strange)
    assert labels.targets(strange, "few").tolist() == labels.targets(strange, "wrong").tolist() == [1, -100]
    assert labels.unlearned(strange) == {"Positive": 1}
    with pytest.raises(UserError, match=r"Of 1 rows, 1 have unknown labels: .*data\.columns"):
        labels.targets(strange[1:], "few")
    both = rows_of("positive", "Positive", "bad").rows
    with pytest.raises(UserError, match=r"line 2: the label 'Positive' .* Of 3 rows, 2 have unknown labels"):
        labels.targets(both)  # the first is named


def test_a_row_with_several_unknown_labels_is_one_row() -> None:
    labels = Labels.of(rows_of("x, y", "y"), "multi")
    strange = rows_of("x", "y", "x, p, q, r").rows
    assert labels.targets(strange, "few").tolist() == [[1, 0], [0, 1], [1, 0]]
    assert labels.unlearned(strange) == {"p": 1, "q": 1, "r": 1}
    with pytest.raises(UserError, match="Of 3 rows, 1 have unknown labels"):
        labels.targets(strange)


def test_what_is_answered() -> None:
    assert Labels(kind="regression").answers == OutputSpec(kind="regression", count=1)
    assert Labels(kind="single", names=("a", "b")).answers == OutputSpec(kind="class", count=2)
    assert Labels(kind="multi", names=("a", "b", "c")).answers == OutputSpec(kind="multilabel", count=3)
