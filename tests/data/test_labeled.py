"""Labeled files: layout inference, errors with their line, stratified splits, and label sets."""

from __future__ import annotations

import csv
import importlib.util
import json
import lzma
import sys
from collections import Counter
from pathlib import Path

import pytest

from seqwright.core.batch import OutputSpec
from seqwright.core.config import UserError
from seqwright.core.storage import to_json, to_record
from seqwright.data.labeled.labels import Labels, rare_labels, split_labels
from seqwright.data.labeled.row import Row
from seqwright.data.labeled.rows import LabeledConfig, Rows, read_rows
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
        ("a.tsv", 'id\ts\tq\n1\ta fine, fine film\tgood\n2\ta "dull" one\tbad\n', {"columns": ("3", "2")}),
        ("a.csv", 'id,s,q\n1,"a fine, fine film",good\n2,"a ""dull"" one",bad\n', {"columns": (3, 2)}),
        ("a.csv", 's,s,q\n1,"a fine, fine film",good\n2,"a ""dull"" one",bad\n', {"columns": ("q", "2")}),
        ("a.csv", 'id,x,x,s,q\n1,,,"a fine, fine film",good\n2,,,"a ""dull"" one",bad\n', {"columns": ("q", "s")}),
        ("a.tsv", 'text\tlabel\n"a fine, fine film"\tgood\n"a ""dull"" one"\tbad\n', {}),
    ],
)
def test_every_layout_parses_to_the_same_rows(tmp_path: Path, name: str, text: str, options: dict[str, object]) -> None:
    assert read(write(tmp_path, name, text), **options) == SAME


@pytest.mark.parametrize("header", [True, False])
def test_label_column_is_inferred_by_values(tmp_path: Path, header: bool) -> None:
    """The column of distinct values is the text; a word above numbers is their header."""
    rows = [("0" if n % 3 else "1", f"text number {n}") for n in range(12)]
    lines = [f"{text}\t{label}" for label, text in rows]
    path = write(tmp_path, "a.tsv", "\n".join([*(["the comment\tscore"] if header else []), *lines]))
    assert read(path) == rows
    path = write(tmp_path, "b.txt", "\n".join(f"{label} {text}" for label, text in rows))
    assert read(path) == rows


def test_a_class_named_like_a_column_is_no_header(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "question\twho\ncomment\tindeed\nquestion\twhat\n")
    assert read(path) == [("question", "who"), ("comment", "indeed"), ("question", "what")]


def test_conflicting_labels_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tsame\nb\tsame\nb\tother\nb\tother\n")
    assert "1 text has conflicting labels" in read_rows(str(path), LabeledConfig(train=str(path))).notes[-1]


def test_rows_that_repeat_a_text_and_its_label_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tsame\nb\tother\na\tsame\nb\tsame\na\tsame\na\t\na\t\n")
    repeated, conflicting, empty = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert repeated.startswith(f"2 rows repeat an earlier one with the same label ({path}, line 3 …)")
    assert conflicting.startswith("1 text has conflicting labels, the first of them 'same': 'a', 'b'.")
    assert "are empty" in empty


def test_notes_about_suspicious_classes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "war,love\tone\nwar\ttwo\n\tthree\n\tfour\na, b\tfive\n")
    empty, lists = read_rows(str(path), LabeledConfig(train=str(path))).notes[-2:]
    assert empty.startswith("2 of 5 rows have an empty label (")
    assert "a.tsv, line 3 …" in empty
    assert lists.startswith("1 labels are lists of others ('war,love' …)")
    assert read_rows(str(path), LabeledConfig(train=str(path), labels="multi")).notes == ()
    path = write(tmp_path, "c.tsv", "Good\tone\ngood\ttwo\nbad\tthree\nGood\tfour\n")
    (note,) = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert note.startswith("'Good' and 'good' differ in case only")
    path = write(tmp_path, "d.tsv", "tốt\tone\nto\u0302\u0301t\ttwo\nxấu\tthree\ntốt\tfour\n")
    (note,) = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert note.startswith("'tốt' has 2 Unicode forms")
    path = write(tmp_path, "b.tsv", "Washington, DC\tone\nParis, TX\ttwo\nWashington, DC\tthree\n")
    assert read_rows(str(path), LabeledConfig(train=str(path))).notes == ()


def test_line_numbers_count_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "a\tone\n\n\nb\ttwo\n")
    places = [row.place for row in read_rows(str(path), LabeledConfig(train=str(path))).rows]
    assert [place.rsplit(" ", 1)[1] for place in places] == ["1", "4"]


def test_long_multiline_csv_fields(tmp_path: Path) -> None:
    """Longer than the default field size limit of csv."""
    csv.field_size_limit(1000)
    long = "a\n" * 1000
    path = write(tmp_path, "a.csv", f'good,"{long}"\nbad,no\n')
    assert read(path) == [("good", long), ("bad", "no")]


def test_json_text_pairs_and_numeric_labels(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"y": 1, "one": "a", "two": "b"}\n{"y": true, "one": "c", "two": ""}\n')
    assert read(path, columns=("y", "one", "two")) == [("1", "a", "b"), ("true", "c", "")]


def test_lists_of_labels_need_multi(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"label": ["x", "z"], "text": "c"}\n{"label": [], "text": "d"}\n')
    assert read(path, labels="multi") == [("x,z", "c"), ("", "d")]
    with pytest.raises(UserError, match=r'line 1: .*"multi" to read lists'):
        read(path)


def test_a_note_about_a_possible_header(tmp_path: Path) -> None:
    for first, noted in (("mood,review\n", True), ("good,so fine\n", False)):
        path = write(tmp_path, "a.csv", first + "good,fine\nbad,dull\nbad,poor\n")
        notes = read_rows(str(path), LabeledConfig(train=str(path))).notes
        assert any("if it is a header" in note for note in notes) == noted


def test_further_tabs_belong_to_the_last_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "0\t3\tplain\n1\t9\twith\ta tab\n")
    assert read(path, columns=("1", "3")) == [("0", "plain"), ("1", "with\ta tab")]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("0\t3\ttext\n", {}, r"3 columns .*--columns label=NAME,text=NAME"),
        ("good film\n", {}, r"no tab .*data\.separator"),
        ("__label__a __label__b film\n__label__a one\n", {}, r"line 1 has several labels.* data\.labels"),
        ("\n\r\n", {}, "blank lines"),
        ("a\tb\nalone\n", {}, "line 2"),
        ("a b\nalone\n", {"separator": " "}, "line 2"),
        ("label\ttext\n", {}, "a header and no rows"),
        ('[{"label": "a", "text": "b"}]\n', {}, "looks like a JSON array"),
        ("a\tb\n", {"columns": ("label", "text")}, "no column 'label'"),
        ("label\ttitle\tbody\na\tb\tc\n", {}, r"3 columns \('label', 'title', 'body'\); name those"),
    ],
)
def test_ambiguous_or_malformed_files_are_refused_with_the_next_move(
    tmp_path: Path, text: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, "a.tsv", text), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": ()}, "--labeled"),
        ({"split": "head 5%"}, "stratified 5%"),
        ({"split": "tail 5%", "valid": "b"}, "keep one"),
        ({"columns": ("1",)}, "label and one text or two"),
        ({"separator": " ", "columns": ("1", "2")}, "leave columns out"),
        ({"separator": ""}, "separator is empty"),
        ({"labels": "regression", "balance": "oversample"}, "balance is for single classes"),
        ({"truncation": "windows", "columns": ("1", "2", "3")}, "windows.* is for single texts"),
    ],
)
def test_contradictory_labeled_config_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LabeledConfig(**{"train": "a", **options})  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("babel") is None, reason="needs Babel: the extra [samples]")
def test_the_language_of_a_table_with_other_columns_is_no_label(tmp_path: Path) -> None:
    (tmp_path / "tickets.csv").write_text("message,queue,lang\nhello,sales,en\nhallo,legal,de\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"has 3 columns \('message', 'queue', 'lang'\); name those of label and text"):
        read_rows(str(tmp_path / "tickets.csv"), LabeledConfig(train="x"))
    (tmp_path / "names.csv").write_text("text,lang\nhello,en\nhallo,de\n", encoding="utf-8")
    rows = read_rows(str(tmp_path / "names.csv"), LabeledConfig(train="x")).rows
    assert [row.label for row in rows] == ["en", "de"]


def test_embedded_languages() -> None:
    rows = read_rows("embedded:languages", LabeledConfig(train="embedded:languages")).rows
    assert ("vi", ("Tiếng Việt",)) in {(row.label, row.texts) for row in rows}
    assert len({row.texts for row in rows}) == len(rows) > 10_000
    assert len({row.label for row in rows}) == 16


def test_embedded_languages_without_babel_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(UserError, match=r"seqwright\[samples\]"):
        read_rows("embedded:languages", LabeledConfig(train="embedded:languages"))


def test_files_of_glue_imdb_sst_and_atis(data_root: Path) -> None:
    """Headers, byte order marks, stray quotes, tabs inside texts: the published numbers of rows. Two have conflicting
    labels, and a note about it."""
    sizes = {}
    for name in ("cola", "mrpc", "rte", "glue-sst2", "sst2", "sst5", "atis-intents", "imdb-rnn"):
        data = load(name).data
        rows = read_rows(data.train, data)
        conflicting = sum("conflicting" in note for note in rows.notes)
        sizes[name] = (len(rows.rows), len({row.label for row in rows.rows}), rows.parts, conflicting)
    assert sizes == {
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
    skipped = read_rows(str(path), LabeledConfig(train=str(path), bad_rows="skip"))
    assert len(skipped.rows) == 1
    assert "malformed rows, skipped: 2 of 3" in skipped.notes[0]
    assert "has an empty text" in skipped.notes[0]


def rows_of(*labels: str) -> Rows:
    return Rows(rows=[Row(label, (f"text {n}",), f"f, line {n + 1}") for n, label in enumerate(labels)])


def test_stratified_split_keeps_the_share_of_every_class() -> None:
    train, valid = rows_of(*["a"] * 200, *["b"] * 40).split("stratified 10%")
    assert Counter(row.label for row in valid.rows) == {"a": 20, "b": 4}
    assert len(train.rows) == 216


def test_stratified_split_ignores_row_order_and_keeps_duplicates_together() -> None:
    rows = [*rows_of(*["a", "b"] * 50).rows, *rows_of(*["a", "b"] * 50).rows]
    _, one = Rows(rows=rows).split("stratified 20%")
    _, other = Rows(rows=rows[::-1]).split("stratified 20%")
    assert {row.texts for row in one.rows} == {row.texts for row in other.rows}
    assert all(count == 2 for count in Counter(row.texts for row in one.rows).values())


def test_stratified_split_never_holds_out_a_whole_class() -> None:
    duplicates = Rows(rows=[Row("b", ("the same",), "")] * 9)
    train, valid = Rows(rows=[*rows_of(*["a"] * 20, *["c"] * 3).rows, *duplicates.rows]).split("stratified 5%")
    assert Counter(row.label for row in valid.rows) == {"a": 1, "c": 1}
    assert {row.label for row in train.rows} == {"a", "b", "c"}


def test_split_of_regression_values_and_tail_split_ignore_classes() -> None:
    train, valid = rows_of(*map(str, range(40))).split("stratified 10%", classes=False)
    assert (len(train.rows), len(valid.rows)) == (36, 4)
    _, last = rows_of(*"abcdefghij").split("tail 20%")
    assert [row.label for row in last.rows] == ["i", "j"]


def test_a_labeled_split_with_an_empty_side_is_refused() -> None:
    with pytest.raises(UserError, match="leaves one side empty"):
        rows_of("a", "b").split("stratified 5%")


def test_labels_are_sorted_and_round_trip() -> None:
    labels = Labels.of(rows_of("b", "a", "b"), "single")
    assert labels.names == ("a", "b")
    assert labels.targets(rows_of("b", "a").rows).tolist() == [1, 0]
    assert to_record(json.loads(to_json(labels.table())), Labels, Path("labels.json")) == labels
    multi = Labels.of(rows_of("x, y", "", "y"), "multi")
    assert multi.targets(rows_of("y,x", "").rows).tolist() == [[1, 1], [0, 0]]
    assert split_labels(" x ,, y") == ["x", "y"]


def test_regression_targets_are_standardized() -> None:
    labels = Labels.of(rows_of("1", "3"), "regression")
    assert (labels.mean, labels.deviation) == (2, 1)
    assert labels.targets(rows_of("4").rows).tolist() == [[2]]
    with pytest.raises(UserError, match=r"f, line 1: the label 'many' is no number"):
        labels.targets(rows_of("many").rows)


def test_a_single_class_and_distinct_labels_are_refused() -> None:
    with pytest.raises(UserError, match="every row has the label 'a'"):
        Labels.of(rows_of("a", "a"), "single")
    with pytest.raises(UserError, match="every label is 3"):
        Labels.of(rows_of("3", "3.0"), "regression")
    with pytest.raises(UserError, match="30 distinct labels in 30 rows are no classes"):
        Labels.of(rows_of(*(f"text {n}" for n in range(30))), "single")


def test_unknown_labels_are_errors_with_their_line_or_counted() -> None:
    labels = Labels.of(rows_of("positive", "negative"), "single")
    unknown = rows_of("positive", "Positive").rows
    with pytest.raises(
        UserError, match=r"f, line 2: the label 'Positive' was not in training.*Did you mean 'positive'"
    ):
        labels.targets(unknown)
    assert labels.targets(unknown, "few").tolist() == labels.targets(unknown, "wrong").tolist() == [1, -100]
    assert labels.unknown_counts(unknown) == {"Positive": 1}
    with pytest.raises(UserError, match=r"Of 1 rows, 1 have unknown labels: .*--columns .*evaluation\.unknown=wrong"):
        labels.targets(unknown[1:], "few")
    both = rows_of("positive", "Positive", "bad").rows
    with pytest.raises(UserError, match=r"line 2: the label 'Positive' .* Of 3 rows, 2 have unknown labels"):
        labels.targets(both)  # the first is named


def test_a_row_with_several_unknown_labels_counts_once() -> None:
    labels = Labels.of(rows_of("x, y", "y"), "multi")
    unknown = rows_of("x", "y", "x, p, q, r").rows
    assert labels.targets(unknown, "few").tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 3]]  # the last: unknown ones
    assert labels.targets(unknown[:2], "few").tolist() == [[1, 0], [0, 1]]
    assert labels.unknown_counts(unknown) == {"p": 1, "q": 1, "r": 1}
    with pytest.raises(UserError, match="Of 3 rows, 1 have unknown labels"):
        labels.targets(unknown)


def test_output_spec_of_labels() -> None:
    assert Labels(kind="regression").output_spec == OutputSpec(kind="regression", count=1)
    assert Labels(kind="single", names=("a", "b")).output_spec == OutputSpec(kind="class", count=2)
    assert Labels(kind="multi", names=("a", "b", "c")).output_spec == OutputSpec(kind="multilabel", count=3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "label,text\nup,fine\nup,fine, and long\nonly\ndown,dull\n"),
        ("a.tsv", "label\ttext\nup\tfine\nonly\ndown\tdull\nalone\n"),
        ("a.txt", "up\tfine\nno label\ndown\tdull\nno label\n"),
        ("a.jsonl", '{"label": "up", "text": "fine"}\n{"label": 3\n{"text": "a"}\n{"label": "down", "text": "dull"}\n'),
    ],
)
def test_malformed_rows_are_counted_and_skipped_on_request(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=r"malformed rows: 2 of 4\.(.|\n)*line \d(.|\n)*line \d(.|\n)*--skip-bad-rows"):
        read_rows(str(path), LabeledConfig(train=str(path)))
    rows = read_rows(str(path), LabeledConfig(train=str(path), bad_rows="skip"))
    assert [(row.label, *row.texts) for row in rows.rows] == [("up", "fine"), ("down", "dull")]
    assert "malformed rows, skipped: 2 of 4." in rows.notes[-1]


def test_a_file_of_malformed_rows_only_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    with pytest.raises(UserError, match="line 1"):
        read_rows(str(path), LabeledConfig(train=str(path), bad_rows="skip", separator="\t"))


def test_rows_without_a_label_are_skipped_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "label,text\nup,fine\n,unknown\n  ,unsure\ndown,dull\n")
    *_, note = read_rows(str(path), LabeledConfig(train=str(path))).notes
    assert note.endswith("which is a class of its own; --skip-bad-rows leaves them out.")
    rows = read_rows(str(path), LabeledConfig(train=str(path), bad_rows="skip"))
    assert [(row.label, *row.texts) for row in rows.rows] == [("up", "fine"), ("down", "dull")]
    columns, skipped = rows.notes
    assert columns == f"{path}: the label is column 'label', the text 'text'; --columns names others."
    assert "malformed rows, skipped: 2 of 4." in skipped
    assert "record 3 has an empty label" in skipped
    assert len(read_rows(str(path), LabeledConfig(train=str(path), bad_rows="skip", labels="multi")).rows) == 4


def test_regression_labels_that_are_no_numbers_are_malformed(tmp_path: Path) -> None:
    labels = ["3", "n/a", "", "nan", "inf", '"3,5"', "$12", '"1,200"', "-4.5e1"]
    path = write(tmp_path, "a.csv", "label,text\n" + "".join(f"{label},text {n}\n" for n, label in enumerate(labels)))
    with pytest.raises(UserError) as refused:
        read_rows(str(path), LabeledConfig(train=str(path), labels="regression"))
    message = str(refused.value)
    assert "malformed rows: 7 of 9." in message
    assert "record 3: the label 'n/a' is no number" in message
    assert "record 4 has an empty label" in message
    assert "--skip-bad-rows" in message
    assert "2 labels are numbers with a comma ('3,5'): write decimals with a point" in message
    rows = read_rows(str(path), LabeledConfig(train=str(path), labels="regression", bad_rows="skip"))
    assert [row.label for row in rows.rows] == ["3", "-4.5e1"]
    assert "malformed rows, skipped: 7 of 9." in rows.notes[-1]
    words = write(tmp_path, "b.csv", "label,text\nup,a\ndown,b\n")
    with pytest.raises(UserError, match=r"None of the 2 rows has a number and a text\. --columns"):
        read_rows(str(words), LabeledConfig(train=str(words), labels="regression", bad_rows="skip"))


@pytest.mark.parametrize(
    ("labels", "noted"), [(["up;down", "up", "up;down"], True), (["up|down", "up"], True), (["a;b", "a,b"], False)]
)
def test_labels_with_another_separator_are_noted(tmp_path: Path, labels: list[str], noted: bool) -> None:
    path = write(tmp_path, "a.tsv", "".join(f"{label}\ttext {n}\n" for n, label in enumerate(labels)))
    notes = read_rows(str(path), LabeledConfig(train=str(path), labels="multi")).notes
    assert any(note.startswith("labels are separated by commas") for note in notes) == noted


def test_a_few_nul_bytes_are_no_utf_16(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "up\tfi\0ne\ndown\tdull\n" * 2)
    path.write_bytes(path.read_bytes().replace(b"\0", b"", 1))
    with pytest.raises(UserError, match=r"has 1 NUL byte, the first at byte \d+ .line 3.; --set data.errors=replace"):
        read_rows(str(path), LabeledConfig(train=str(path)))
    path.write_bytes("up\tfine\ndown\tdull\n".encode("utf-16-le"))
    with pytest.raises(UserError, match="looks binary or UTF-16"):
        read_rows(str(path), LabeledConfig(train=str(path)))


def test_rare_labels_are_named() -> None:
    rows = [Row(label, ("text",), "") for label in ["many"] * 9 + ["few"] * 4 + ["one"]]
    assert "fewer than 5 texts: 'one' (1), 'few' (4);" in rare_labels(rows)[0]
    assert rare_labels(rows[:9]) == []
