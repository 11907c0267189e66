"""Tables of texts, streamed with every column: plain lines, CSV, TSV and JSON lines.

The first lines decide the delimiter, the header and the text columns; only unambiguous layouts are inferred
(decision 130). Memory is that of the lines that arrive together, however long the file is.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.files import plain_suffix
from seqwright.data.headers import LABEL_NAMES, TEXT_NAMES
from seqwright.data.records import (
    DELIMITERS,
    csv_reader,
    csv_records,
    describe_row,
    infer_delimiter,
    is_quoted,
    parse_object,
    shortened,
)
from seqwright.data.text_columns import TextColumns, ambiguous_columns, distinct_names, named_columns, table_layout

TableFormat = Literal["text", "csv", "tsv", "jsonl"]
FORMAT_OF: dict[str, TableFormat] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Formats by suffix; any other file is plain text."""
SAMPLE_LINES = 1000
"""Lines from which a layout is inferred."""
SHOWN_LINES = 10
"""Malformed rows of which a note says the lines."""


def format_of(path: Path) -> TableFormat:
    """The format of a file by its suffix."""
    return FORMAT_OF.get(plain_suffix(path), "text")


def trained_format(line: str, trained: Sequence[str]) -> TableFormat | None:
    """The format of a table whose first line has all columns of the training files by name, if it has."""
    names = {name for name in trained if not name.isdecimal()}
    if not names or len(names) < len(trained):
        return None
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            values = json.loads(line)
            return "jsonl" if isinstance(values, dict) and names <= {*values} else None
    for delimiter in "\t,;":
        with suppress(csv.Error):
            cells: list[str] = next(iter(csv_reader([line], delimiter)), [])
            if len(cells) > 1 and names <= {*cells}:
                return "tsv" if delimiter == "\t" else "csv"
    return None


def resembled_format(lines: Sequence[str]) -> TableFormat | None:
    """The format of a table that plain text looks like, if any, by its first lines: JSON objects, a header with usual
    names, or rows of equally many cells. In prose, a space follows a comma."""
    line = lines[0] if lines else ""
    if line.startswith("{"):
        with suppress(ValueError, RecursionError):
            return "jsonl" if isinstance(json.loads(line), dict) else None
    cells = {mark: [cell.strip(' "').casefold() for cell in line.split(mark)] for mark in ",;\t" if mark in line}
    known = {*LABEL_NAMES, *TEXT_NAMES}
    found = next((mark for mark, names in cells.items() if known & {*names} and " " not in "".join(names)), None)
    found = found or next((mark for mark in cells if _rows_of_cells(lines, mark)), None)
    return None if found is None else "tsv" if found == "\t" else "csv"


def _rows_of_cells(lines: Sequence[str], delimiter: str) -> bool:
    """Whether lines are rows of a table without a header: several of them, or one with a quoted cell."""
    rows = _sample_rows([line for line in lines if line.strip()], "csv", delimiter)
    spaced = any(cell.startswith(" ") for row in rows for cell in row[1:])
    quoted = any(f'{delimiter}"' in line for line in lines)
    return len({len(row) for row in rows}) == 1 and len(rows[0]) > 1 and not spaced and (len(rows) > 1 or quoted)


class Lines(Iterator[str]):
    """Lines that arrive in chunks: those of a file, or what a pipe or a person has written so far."""

    def __init__(self, chunks: Iterable[Sequence[str]]):
        self.chunks = iter(chunks)
        self.arrived: deque[str] = deque()
        self.bytes_read = 0

    def __next__(self) -> str:
        while not self.arrived:
            self.arrived.extend(next(self.chunks))
        line = self.arrived.popleft()
        self.bytes_read += len(line.encode()) + 1
        return line

    def chunks_left(self) -> Iterator[list[str]]:
        """The chunks that are left to be read, those that have arrived first."""
        if self.arrived:
            yield list(self.arrived)
        for chunk in self.chunks:
            yield list(chunk)

    def blank(self) -> bool:
        """Whether no line has more than white space; reads up to the first that has, and they stay to be read."""
        while not any(line.strip() for line in self.arrived):
            if (chunk := next(self.chunks, None)) is None:
                return True
            self.arrived.extend(chunk)
        return False

    def peek(self) -> list[str]:
        """The first lines that have arrived, which stay to be read; empty at the end."""
        while not self.arrived and (chunk := next(self.chunks, None)) is not None:
            self.arrived.extend(chunk)
        return [line for line, _ in zip(self.arrived, range(SAMPLE_LINES), strict=False)]


def first_line(lines: Lines) -> str:
    """The first line, which stays to be read; empty where there is none."""
    return next(iter(lines.peek()), "")


@dataclass(frozen=True)
class TableRow:
    """One record with all of its columns."""

    values: Mapping[str, Any]
    """Cells by column name, or by number from 1 where there is no header."""
    texts: tuple[Any, ...]
    """Those of the text columns."""
    line: str
    """As it was read; empty for CSV and quoted TSV, where a record may span lines."""


@dataclass(frozen=True)
class MalformedRow:
    """A record that cannot be read."""

    line: int
    error: UserError


@dataclass
class SkippedRows:
    """Malformed rows that were left out of a table: how many, where the first ones are, and the error of the first."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    first: UserError | None = None

    def add(self, row: MalformedRow) -> None:
        """Counts a row."""
        self.count += 1
        self.first = self.first or row.error
        if len(self.lines) < SHOWN_LINES:
            self.lines.append(row.line)

    def note(self, name: str) -> str:
        """One line for the user about the rows of this file."""
        shown = ", ".join(f"{line:,}" for line in self.lines) + (" …" if self.count > len(self.lines) else "")
        where = f" (lines {shown})" if self.count > 1 else ""
        return f"{name}: malformed rows, skipped: {self.count:,}{where}. {self.first}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, open for reading."""

    name: str
    """File name, for messages."""
    format: TableFormat
    columns: tuple[str, ...]
    """All columns: those of the header or of the first JSON object, or numbers from 1; repeated names with a number."""
    text_columns: tuple[str, ...]
    """Columns of the texts."""
    header: bool = True
    """Whether the first line of a CSV or TSV file names its columns."""
    names: tuple[str, ...] = ()
    """Those of the header, as they are written."""
    quoted: bool = False
    """Whether the cells of a TSV file are quoted, as those of CSV files are."""
    delimiter: str = ","
    word_lists: bool = False
    """Whether a JSON list of words is a text, too."""
    skipped: SkippedRows | None = None
    """Malformed rows that were left out so far; None: they are errors."""
    lines: Lines

    def groups(self) -> Iterator[list[TableRow]]:
        """Rows in order, in groups that end where the next line has not arrived yet."""
        group: list[TableRow] = []
        read = 0
        for row in self._rows():
            read += 1
            if isinstance(row, TableRow):
                group.append(row)
            elif self.skipped is None:
                raise UserError(f"{row.error} Fix it, or leave such rows out with --skip-bad-rows.")
            else:
                self.skipped.add(row)
            if not self.lines.arrived and group:
                yield group
                group = []
        if group:
            yield group
        if self.skipped is not None and self.skipped.first and self.skipped.count == read:
            raise self.skipped.first

    def _rows(self) -> Iterator[TableRow | MalformedRow]:
        if self.format == "text":
            return self._texts()
        return self._objects() if self.format == "jsonl" else self._cells()

    def _texts(self) -> Iterator[TableRow]:
        for line in self.lines:
            texts = tuple(line.split("\t")) if len(self.columns) > 1 else (line,)
            yield TableRow(dict(zip(self.columns, texts, strict=False)), texts, line)

    def _objects(self) -> Iterator[TableRow | MalformedRow]:
        for number, line in enumerate(self.lines, 1):
            if line.strip():
                try:
                    yield self._object(line, f"{self.name}, line {number:,}")
                except UserError as error:
                    yield MalformedRow(number, error)

    def _object(self, line: str, place: str) -> TableRow:
        values = parse_object(line, place)
        if self.skipped is not None:  # the row keeps its place, as one with an empty cell of a CSV file does
            texts = tuple("" if values.get(column) is None else values[column] for column in self.text_columns)
            if all(map(self._is_text, texts)):
                return TableRow(values, texts, line)
        for column in self.text_columns:
            if column not in values:
                raise UserError(f"{place} has no key '{column}'.{did_you_mean(column, values)}")
            if not self._is_text(values[column]):
                raise UserError(f"{place}: '{column}' is {shortened(values[column])}, not a string.")
        return TableRow(values, tuple(values[column] for column in self.text_columns), line)

    def _is_text(self, value: Any) -> bool:
        words = self.word_lists and isinstance(value, list) and all(isinstance(word, str) for word in value)
        return words or isinstance(value, str)

    def _cells(self) -> Iterator[TableRow | MalformedRow]:
        rows = self._csv() if self.format == "csv" or self.quoted else self._tsv()
        if self.header:
            next(rows)
        width = len(self.columns)
        for number, cells in rows:
            if len(cells) != width:
                found = describe_row(cells, self.delimiter)
                error = UserError(f"{self.name}, line {number:,} {found}, where the first line has {width}.")
                yield MalformedRow(number, error)
                continue
            values = dict(zip(self.columns, cells, strict=True))
            line = self.delimiter.join(cells) if self.format == "tsv" and not self.quoted else ""
            yield TableRow(values, tuple(values[column] for column in self.text_columns), line)

    def _csv(self) -> Iterator[tuple[int, list[str]]]:
        return csv_records((f"{line}\n" for line in self.lines), Path(self.name), self.delimiter)

    def _tsv(self) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(self.lines, 1):
            if line:  # blank lines hold no record; further tabs belong to the last column
                yield number, line.split("\t", len(self.columns) - 1)


def open_table(
    lines: Lines, name: str, format: TableFormat, wanted: TextColumns, *, skip_bad_rows: bool = False
) -> Table:
    """A table with its text columns: those chosen, those of the training files, or those with usual names."""
    skipped = SkippedRows() if skip_bad_rows else None
    if format == "text":
        return Table(name=name, format=format, columns=wanted.roles, text_columns=wanted.roles, lines=lines)
    if lines.blank():  # as many results as texts: none
        return Table(name=name, format=format, columns=(), text_columns=(), header=False, lines=Lines(()))
    sample = lines.peek()
    if not any(line.strip() for line in sample):
        raise UserError(f"{name} begins with {len(sample):,} blank lines; remove them.")
    if format == "jsonl":
        keys = _first_keys(sample, name, skip_bad_rows=skip_bad_rows)
        if not (text_columns := named_columns(keys, wanted, name)):
            raise ambiguous_columns(keys, wanted, name)
        return Table(
            name=name,
            format=format,
            columns=keys,
            text_columns=text_columns,
            word_lists=wanted.word_lists,
            skipped=skipped,
            lines=lines,
        )
    quoted = format == "tsv" and is_quoted("\n".join(sample), cut=True)
    parsed_as: TableFormat = "csv" if quoted else format
    delimiter = infer_delimiter(partial(_sample_rows, sample, format)) if format == "csv" else DELIMITERS[".tsv"]
    first_row, *rows = _sample_rows(sample, parsed_as, delimiter) or [[sample[0]]]
    header, indices = table_layout(tuple(first_row), rows, wanted, name, delimiter)
    columns = distinct_names(first_row) if header else tuple(str(n) for n in range(1, len(first_row) + 1))
    return Table(
        name=name,
        format=format,
        columns=columns,
        text_columns=tuple(columns[index] for index in indices),
        header=header,
        names=tuple(first_row) if header else (),
        quoted=quoted,
        delimiter=delimiter,
        skipped=skipped,
        lines=lines,
    )


def _first_keys(sample: Sequence[str], name: str, *, skip_bad_rows: bool) -> tuple[str, ...]:
    """The keys of the first JSON object."""
    errors = []
    for number, line in enumerate(sample, 1):
        try:
            if line.strip():
                return tuple(parse_object(line, f"{name}, line {number:,}"))
        except UserError as error:
            if not skip_bad_rows:
                raise
            errors.append(error)
    raise errors[0]


def _sample_rows(sample: Sequence[str], format: TableFormat, delimiter: str) -> list[list[str]]:
    """The records of the first lines."""
    if format == "tsv":
        return [line.split("\t") for line in sample if line]
    rows: list[list[str]] = []
    with suppress(csv.Error):  # the sample may end inside a quoted cell; errors before its end are raised in reading
        rows.extend(csv_reader((f"{line}\n" for line in sample), delimiter))
    return [row for row in rows if row]
