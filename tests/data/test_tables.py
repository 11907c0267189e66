"""Tables in and out: layouts, streaming, and every column kept."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from seqwright.core.config import UserError
from seqwright.data.column_roles import columns_override, parse_columns
from seqwright.data.table_writer import TableWriter
from seqwright.data.tables import (
    Lines,
    Table,
    TableFormat,
    open_table,
    resembled_format,
    trained_format,
)
from seqwright.data.text_columns import TextColumns


def opened(text: str, format: TableFormat, **wanted: object) -> Table:
    lines = Lines([text.removesuffix("\n").split("\n")])
    return open_table(lines, f"a.{format}", format, TextColumns(**wanted))  # type: ignore[arg-type]


def texts(table: Table) -> list[tuple[str, ...]]:
    return [row.texts for group in table.groups() for row in group]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("tsv", "good\tone, two\nbad\tthree\ngood\tthree\n"),
        ("tsv", "one, two\nthree\nthree\n"),
        ("csv", 'text\n"one, two"\nthree\nthree\n'),
        ("csv", 'label,text\ngood,"one, two"\nbad,three\nbad,three\n'),
        ("csv", "label;text\ngood;one, two\nbad;three\nbad;three\n"),
        ("csv", "id;review;more\n1;one, two;x\n2;three;y\n3;three;y\n"),
        ("jsonl", '{"text": "one, two"}\n\n{"text": "three"}\n{"text": "three"}\n'),
        ("text", "one, two\nthree\nthree\n"),
    ],
)
def test_texts_are_found_with_and_without_other_columns(format: TableFormat, text: str) -> None:
    assert texts(opened(text, format, classes=True)) == [("one, two",), ("three",), ("three",)]


def test_repeated_names_are_read_by_number_and_stay() -> None:
    table = opened("id,note,note,text\n1,a,b,c\n", "csv")
    assert texts(table) == [("c",)]
    table = opened("id,note,note,text\n1,a,b,c\n", "csv", chosen=("3",))
    (row,) = next(table.groups())
    assert row.texts == ("b",)
    assert row.values == {"id": "1", "note": "a", "note.1": "b", "text": "c"}
    writer = TableWriter(table, "csv", ["label"])
    assert writer.head() + writer.row(row, {"label": "x"}) == "id,note,note,text,label\n1,a,b,c,x\n"
    with pytest.raises(UserError, match="2 columns 'note', 2 and 3; select columns by number"):
        opened("id,note,note,text\n1,a,b,c\n", "csv", chosen=("note",))


def test_quoted_tsv_is_read_and_written_as_csv() -> None:
    text = 'id\ttext\tn\n1\t"a ""b""\n\tc"\t2\n2\td\t3\n'
    table = opened(text, "tsv")
    rows = [row for group in table.groups() for row in group]
    assert [row.texts for row in rows] == [('a "b"\n\tc',), ("d",)]
    writer = TableWriter(table, "tsv", ["label"])
    assert writer.row(rows[0], {"label": "x"}) == '1\t"a ""b""\n\tc"\t2\tx\n'
    assert writer.unchanged(rows[1]) == "2\td\t3\t\n"
    plain = opened('id\ttext\n1\t"a" or b\n2\t"c"\n', "tsv")  # as GLUE's files
    assert texts(plain) == [('"a" or b',), ('"c"',)]
    with pytest.raises(UserError, match="does a quoted cell go on in another line"):
        texts(opened('id\ttext\tn\n1\t"a\nb"\t2\n2\t"a" b\t3\n', "tsv"))


def test_texts_with_semicolons_are_not_split() -> None:
    assert texts(opened("one; two\nthree\n", "csv")) == [("one; two",), ("three",)]


def test_chosen_columns_win_over_trained_and_usual_ones() -> None:
    table = "text,body,subject\na,b,c\n"
    assert texts(opened(table, "csv")) == [("a",)]
    assert texts(opened(table, "csv", trained=("subject",))) == [("c",)]
    assert texts(opened(table, "csv", trained=("subject",), chosen=("body",))) == [("b",)]
    assert texts(opened(table, "csv", trained=("absent",))) == [("a",)]
    assert texts(opened(table, "csv", chosen=("2",))) == [("b",)]  # a number of a file with a header
    assert texts(opened("x\ty\nz\tw\n", "tsv", chosen=("2",))) == [("y",), ("w",)]
    assert texts(opened("3,stocks,words\n4,other,more\n", "csv", chosen=("3",))) == [("words",), ("more",)]
    assert texts(opened("a\tb\n", "text", roles=("text", "text2"))) == [("a", "b")]


def test_trained_numbers_are_those_of_tables_without_a_header() -> None:
    assert texts(opened("text,date\na,1999\n", "csv", trained=("2",))) == [("a",)]
    assert texts(opened("x,y\nz,w\n", "csv", trained=("2",))) == [("y",), ("w",)]
    with pytest.raises(UserError, match="3 columns"):
        opened("id,date,note\n1,1999,a\n", "csv", trained=("2",))


@pytest.mark.parametrize(
    ("format", "text", "wanted", "message"),
    [
        ("csv", "a,b,c\n1,2,3\n", {}, "3 columns .* --columns text=NAME"),
        ("csv", "text,b\n1,2\n", {"chosen": ("texts",)}, "no column 'texts'; .* Did you mean 'text'"),
        ("csv", "x,y\n1,2\n", {"chosen": ("3",)}, "--columns names 3"),
        ("csv", "text,text\n1,2\n", {}, "2 columns 'text', 1 and 2; select"),
        ("jsonl", '{"a": 1, "b": 2}\n', {}, "2 columns"),
        ("jsonl", "{nothing\n", {}, "line 1 is no JSON object"),
    ],
)
def test_ambiguous_tables_are_refused(format: TableFormat, text: str, wanted: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        opened(text, format, **wanted)


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("csv", "text,n\na,1\nb\n", "line 3 has 1 comma-separated column"),
        ("csv", 'text,n\na,1\n"b,2\n', "line 3 opens a quote"),
        ("jsonl", '{"text": "a"}\n{"txt": "b"}\n', "line 2 has no key 'text'"),
        ("jsonl", '{"text": "a"}\n{"text": 3}\n', "line 2: 'text' is 3, not a string"),
        ("jsonl", '{"text": "a"}\n{"text": ["a", "b"]}\n', "line 2: 'text' is .*, not a string"),
    ],
)
def test_malformed_rows_are_named(format: TableFormat, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        texts(opened(text, format))


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("csv", "text,n\na,1\nb\nc,2\n"),
        ("csv", "text;n\na;1\nb;2;3;4\nc;2\n"),
        ("jsonl", '{"text": "a"}\n{"text": 3}\n{"text": "c"}\n'),
        ("jsonl", 'no object\n{"text": "a"}\n{"text": "c"}\n'),
    ],
)
def test_malformed_rows_are_skipped_and_counted(format: TableFormat, text: str) -> None:
    table = open_table(Lines([text.splitlines()]), "a", format, TextColumns(), skip_bad_rows=True)
    assert texts(table) == [("a",), ("c",)]
    assert table.skipped is not None
    assert table.skipped.note("a").startswith("a: malformed rows, skipped: 1. a, line ")


def test_skipped_rows_are_named_by_line() -> None:
    lines = ["text,n", *("a,1" for _ in range(3)), *("b" for _ in range(12))]
    table = open_table(Lines([lines]), "a.csv", "csv", TextColumns(), skip_bad_rows=True)
    assert len(texts(table)) == 3
    assert table.skipped is not None
    assert "skipped: 12 (lines 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 …). a.csv, line 5" in table.skipped.note("a.csv")


def test_objects_without_a_text_keep_their_place_where_malformed_rows_are_skipped() -> None:
    lines = ['{"text": "a"}', '{"text": null}', '{"id": 3}']
    table = open_table(Lines([lines]), "a", "jsonl", TextColumns(), skip_bad_rows=True)
    assert texts(table) == [("a",), ("",), ("",)]
    with pytest.raises(UserError, match="line 2: 'text' is null"):
        texts(open_table(Lines([lines]), "a", "jsonl", TextColumns()))


def test_a_table_of_malformed_rows_only_is_refused() -> None:
    lines = Lines([["text,n", "a", "b,1,2"]])
    with pytest.raises(UserError, match="line 2 has 1 comma-separated column"):
        texts(open_table(lines, "a.csv", "csv", TextColumns(), skip_bad_rows=True))


@pytest.mark.parametrize("format", ["text", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize("chunks", [[], [[]], [["", "  "], [""]]])
def test_an_empty_table_has_no_rows_and_no_header(format: TableFormat, chunks: list[list[str]]) -> None:
    """Plain text is as many texts as lines."""
    table = open_table(Lines(chunks), "a", format, TextColumns(chosen=("body",) if format != "text" else ()))
    assert len(texts(table)) == (sum(map(len, chunks)) if format == "text" else 0)
    assert TableWriter(table, format, ["label"]).head() == ""


def test_leading_blank_lines_are_no_empty_table() -> None:
    table = open_table(Lines([[""], ["", "text,n", "a,1"]]), "a", "csv", TextColumns())
    assert texts(table) == [("a",)]
    with pytest.raises(UserError, match="begins with 1,000 blank lines"):
        open_table(Lines([[""] * 1000, ["text,n"]]), "a", "csv", TextColumns())


def test_word_lists_are_texts_where_they_are_wanted() -> None:
    assert texts(opened('{"text": ["a", "b"]}\n', "jsonl", word_lists=True)) == [(["a", "b"],)]
    with pytest.raises(UserError, match=r"line 1: 'text' is .*, not a string"):
        texts(opened('{"text": ["a", 3]}\n', "jsonl", word_lists=True))


def test_rows_are_grouped_as_they_arrive() -> None:
    """A group ends with what has arrived, so that no row waits for the next; quoted cells may span chunks."""

    def chunks() -> Iterator[list[str]]:
        for chunk in (["text,n", "a,1"], ["b,2", '"c'], ['d",3']):
            arrived.append(chunk)
            yield chunk

    arrived: list[list[str]] = []
    table = open_table(Lines(chunks()), "a.csv", "csv", TextColumns())
    groups = table.groups()
    assert ([row.texts for row in next(groups)], len(arrived)) == ([("a",)], 1)
    assert [[row.texts for row in group] for group in groups] == [[("b",), ("c\nd",)]]


def written(table: Table, format: TableFormat, added: dict[str, object]) -> str:
    writer = TableWriter(table, format, list(added))
    return writer.head() + "".join(writer.row(row, added) for group in table.groups() for row in group)


def test_every_column_is_kept_and_new_ones_are_last() -> None:
    rows = [["id", "text", "note"], ["1", 'He said: "a, b"', "two\nlines"], ["2", "Tiếng Việt 😀", ""]]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    result = written(opened(text.getvalue(), "csv"), "csv", {"label": "x", "probability": 0.123456789})
    wider = [[*rows[0], "label", "probability"], *([*row, "x", "0.123457"] for row in rows[1:])]
    assert list(csv.reader(io.StringIO(result))) == wider
    lines = written(opened(text.getvalue(), "csv"), "jsonl", {"label": "x"}).splitlines()
    assert json.loads(lines[0]) == {"id": "1", "text": 'He said: "a, b"', "note": "two\nlines", "label": "x"}
    table = opened(text.getvalue(), "csv")
    writer = TableWriter(table, "tsv", [])
    tsv = [writer.row(row, {}) for group in table.groups() for row in group]
    assert (tsv[0], writer.flattened) == ('1\tHe said: "a, b"\ttwo lines\n', 1)
    assert written(opened("a\tb\nc\td\n", "tsv", chosen=("2",)), "tsv", {"n": 1}) == "a\tb\t1\nc\td\t1\n"
    assert written(opened("id;text\n1;a\n", "csv"), "csv", {"n": None}) == "id;text;n\n1;a;\n"
    assert written(opened("a\n", "text"), "csv", {"n": [1, 2]}) == 'text,n\na,"[1, 2]"\n'


@pytest.mark.parametrize(("format", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_only_added_numbers_are_rounded(format: TableFormat, delimiter: str) -> None:
    table = opened('{"text": "a", "price": 1234567.891, "tiny": 1e-20, "n": 12345678901}\n', "jsonl")
    row = written(table, format, {"probability": 0.123456789}).splitlines()[1]
    assert row.split(delimiter) == ["a", "1234567.891", "1e-20", "12345678901", "0.123457"]


def test_taken_names_get_a_prefix_or_an_error() -> None:
    result = written(opened("label,text\nx,a\n", "csv"), "csv", {"label": "y"})
    assert result == "label,text,predicted_label\nx,a,y\n"
    with pytest.raises(UserError, match="'label' and 'predicted_label'; rename one"):
        written(opened("label,predicted_label,text\nx,y,a\n", "csv"), "csv", {"label": "y"})
    later = opened('{"text": "a"}\n{"text": "b", "label": "z"}\n', "jsonl")
    assert [json.loads(line) for line in written(later, "jsonl", {"label": "y"}).splitlines()] == [
        {"text": "a", "label": "y"},
        {"text": "b", "label": "z", "predicted_label": "y"},
    ]
    both = opened('{"text": "a"}\n{"text": "b", "label": "z", "predicted_label": "w"}\n', "jsonl")
    last = json.loads(written(both, "jsonl", {"label": "y"}).splitlines()[1])
    assert (last["label"], last["predicted_label"], last["predicted_predicted_label"]) == ("z", "w", "y")
    with pytest.raises(UserError, match="key 'n', which the first one lacks"):
        written(opened('{"text": "a"}\n{"text": "b", "n": 1}\n', "jsonl"), "csv", {"label": "y"})


def test_columns_by_role() -> None:
    roles = ("text", "label")
    assert parse_columns(["text=a, b,label=c"], roles) == {"text": "a, b", "label": "c"}
    assert parse_columns(["body"], roles) == {"text": "body"}
    sources = {"source": "a", "source2": "b", "source3": "c"}
    assert parse_columns(["source=a,source2=b,source3=c"], tuple(sources)) == sources
    assert columns_override(["text=a,label=b"], "labeled") == ['data.columns=["b", "a"]']
    assert columns_override(["source=2,target=1"], "pairs") == ["data.columns=[2, 1]"]
    assert columns_override([], "labeled") == []
    for option, message in (("txt=a", "Did you mean 'text'"), ("text=a,text=b", "one column"), ("text=", "one column")):
        with pytest.raises(UserError, match=message):
            parse_columns([option], roles)
    with pytest.raises(UserError, match=r"no role 'labl' here\. Did you mean 'label'\?"):
        columns_override(["text=a,labl=b"], "labeled")
    with pytest.raises(UserError, match="no role 'foo' here"):
        columns_override(["text=a,label=b,foo=c"], "labeled")
    with pytest.raises(UserError, match="names no label"):
        columns_override(["text=a"], "labeled")


@pytest.mark.parametrize(
    ("line", "format"),
    [
        ("id,text", "csv"),
        ('"Label";"Body"', "csv"),
        ("text\tlabel", "tsv"),
        ('{"text": "a"}', "jsonl"),
        ("the text, of it", None),
        ("{ text }", None),
        ("text", None),
        ("", None),
        ('1,"late, again",x\n2,lost,y', "csv"),
        ("1;late\n\n2;lost", "csv"),
        ('billing,"charged twice"', "csv"),
        ("late\tx\nlost\ty", "tsv"),
        ("late, again\nlost, too", None),
        ("1,late\nlost", None),
        ("version 1,2", None),
    ],
)
def test_plain_text_that_starts_like_a_table(line: str, format: str | None) -> None:
    assert resembled_format(line.split("\n")) == format


@pytest.mark.parametrize(
    ("line", "trained", "format"),
    [
        ("id,Inhalt", ("Inhalt",), "csv"),
        ('"The id";"Der Inhalt"', ("Der Inhalt",), "csv"),
        ("Inhalt\tid", ("Inhalt",), "tsv"),
        ('{"Inhalt": "a", "id": 1}', ("Inhalt",), "jsonl"),
        ("id,Inhalt der Kiste", ("Inhalt",), None),
        ("Inhalt", ("Inhalt",), None),
        ("1,2", ("2",), None),
        ("id,Inhalt", (), None),
        ("id,Inhalt", ("Inhalt", "Frage"), None),
    ],
)
def test_a_header_of_the_training_files_is_recognized(line: str, trained: tuple[str, ...], format: str | None) -> None:
    assert trained_format(line, trained) == format
