"""Parsers for records: JSON lines, CSV and TSV, reduced to the columns that `data.columns` names.

Columns are selected by key or header name, or by number from 1 ("3") in files without a header. The suffix selects the
parser: .jsonl and .ndjson, .csv (RFC 4180 quoting) and .tsv (no quoting; the last column takes the rest of its line).
Malformed records are errors that name the file, the line and its content.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.printable import quantity
from seqwright.data.files import COLUMNAR, plain_suffix

JSON_LINES = (".jsonl", ".ndjson")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
DELIMITER_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
RECORD_SUFFIXES = (*JSON_LINES, *DELIMITERS)
MAX_HEADER_CELL = 40
"""Characters up to which a cell may be a column name; longer cells are text."""

Row = tuple[str, ...]


def holds_records(path: Path) -> bool:
    """Whether the suffix of a file is one of records."""
    return plain_suffix(path) in (*RECORD_SUFFIXES, *COLUMNAR)


def records(
    text: str, path: Path, columns: Sequence[str], *, line: int = 1, header: str = "", suffix: str | None = None
) -> Iterator[Row]:
    """The selected columns of each record of a file's text, as `parse_records` has them; malformed ones are raised."""
    for row in parse_records(text, path, columns, line=line, header=header, suffix=suffix):
        if isinstance(row, UserError):
            raise row
        yield row


def parse_records(
    text: str,
    path: Path,
    columns: Sequence[str],
    *,
    line: int = 1,
    header: str = "",
    suffix: str | None = None,
    delimiter: str | None = None,
    scalars: Sequence[str] = (),
    lists: Sequence[str] = (),
) -> Iterator[Row | UserError]:
    """The selected columns of each record of a file's text; of a malformed record the error, to raise or to count.

    `path` gives the format (unless `suffix` does, and `delimiter` for a .csv) and the name in messages. A file may be
    parsed block by block: `line` is the number of the block's first line, and `header` the file's first record for all
    blocks but the first. Numbers and booleans become their JSON text in columns listed in `scalars`, lists of strings
    become comma-separated strings in columns listed in `lists`; elsewhere both are errors.
    """
    suffix = suffix or plain_suffix(path)
    if suffix in JSON_LINES:
        return _json_lines(text, path, columns, line, scalars, lists)
    first = line - header.count("\n")
    delimiter = delimiter or DELIMITERS[suffix]
    rows = _table(parse_table(header + text, path, suffix, delimiter, first), path, columns, delimiter)
    # With numbered columns the first record is data, and was returned with the first block already.
    return islice(rows, 1, None) if header and _numbered(columns) else rows


def parse_table(text: str, path: Path, suffix: str, delimiter: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, cells) of each record of a CSV or TSV text."""
    return _parse_csv(text, path, first, delimiter) if suffix == ".csv" else _parse_tsv(text, first)


def record_ends(text: str, path: Path, line: int) -> Iterator[int]:
    """Character offsets at which the records of a CSV block end, without a last record that the block cuts off."""
    offset = 0

    def lines() -> Iterator[str]:
        nonlocal offset
        for line in io.StringIO(text, newline=""):
            offset += len(line)
            yield line

    reader, start = csv_reader(lines()), line
    try:
        for _ in reader:
            start = line + reader.line_num
            yield offset
    except csv.Error as error:
        # At the end of the block an open quote is no error: the next block may close it.
        if offset < len(text):
            raise csv_error(path, start, line + reader.line_num - 1, error) from error


def parse_object(line: str, place: str) -> dict[str, Any]:
    """The JSON object on a line; `place` (file and line) is for messages."""
    if not line.strip():
        raise UserError(f"{place} is empty; JSON lines hold one object each. Delete it.")
    try:
        record = json.loads(line, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} is no JSON object: {error}. Found: {line[:60]!r}.") from None
    if not isinstance(record, dict):
        raise UserError(f"{place} holds {shortened(record)}, not an object with keys.")
    return record


def _json_lines(
    text: str, path: Path, columns: Sequence[str], first: int, scalars: Sequence[str], lists: Sequence[str]
) -> Iterator[Row | UserError]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), first):
        place = f"{path}, line {number:,}"
        try:
            record = parse_object(line, place)
            row = tuple(_json_cell(record, column, place, column in scalars, column in lists) for column in columns)
        except UserError as error:
            yield error
        else:
            yield row


def _json_cell(record: dict[str, Any], column: str, place: str, scalar: bool, string_list: bool) -> str:
    """The string of a key, or of a number, a boolean or a list of strings where those are accepted."""
    if column not in record:
        raise UserError(f"{place} has no key '{column}'.{did_you_mean(column, record)}")
    value = record[column]
    if scalar and isinstance(value, bool | int | float):
        value = json.dumps(value)
    elif _is_string_list(value) and string_list:
        value = ",".join(value)
    elif _is_string_list(value) and scalar:
        raise UserError(
            f"{place}: '{column}' is {shortened(value)}; set data.labels = \"multi\" to read lists of labels."
        )
    if not isinstance(value, str):
        raise UserError(f"{place}: '{column}' is {shortened(value)}, not a string.")
    return value


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; a duplicate key is an error, since `json` would silently keep its last value."""
    duplicates = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if duplicates:
        raise ValueError(f"duplicate key '{duplicates[0]}'")
    return dict(pairs)


def _table(
    rows: Iterable[tuple[int, list[str]]], path: Path, columns: Sequence[str], delimiter: str
) -> Iterator[Row | UserError]:
    rest = iter(rows)
    line, first = next(rest, (0, []))
    if not first:
        raise UserError(f"{path} holds no records.")
    if _numbered(columns):
        indices = [int(column) - 1 for column in columns]
        if not all(0 <= index < len(first) for index in indices):
            numbers = ", ".join(columns)
            raise UserError(f"{path}, line {line} {describe_row(first, delimiter)}; data.columns asks for {numbers}.")
        yield tuple(first[index] for index in indices)
    else:
        duplicates = [name for name, count in Counter(first).items() if count > 1]
        if duplicates:
            raise UserError(
                f"{path}: the header names two columns '{duplicates[0]}'; rename one, or select columns by number:"
                ' "1", "2".'
            )
        for column in columns:
            if column not in first:
                hint = did_you_mean(column, first) if max(map(len, first)) <= MAX_HEADER_CELL else ""
                raise UserError(
                    f"{path} has no column '{column}': its first line {describe_row(first, delimiter)}.{hint} Name"
                    " others with --columns ROLE=NAME."
                )
        indices = [first.index(column) for column in columns]
    for line, row in rest:
        if len(row) == len(first):
            yield tuple(row[index] for index in indices)
        else:
            yield UserError(
                f"{path}, line {line:,} {describe_row(row, delimiter)}, where the first line has {len(first)}; fix the"
                " line."
            )


def _numbered(columns: Sequence[str]) -> bool:
    return all(column.isdecimal() for column in columns)


def describe_row(row: list[str], delimiter: str) -> str:
    """The number of columns and the text of a line, with a guess at the delimiter where it has one column only."""
    text = delimiter.join(row)
    others = [name for other, name in DELIMITER_NAMES.items() if other != delimiter and other in text]
    hint = f" (is it separated by {others[0]}s?)" if len(row) == 1 and others else ""
    return f"has {quantity(len(row), f'{DELIMITER_NAMES[delimiter]}-separated column')}{hint}: {text[:60]!r}"


def _parse_tsv(text: str, first: int) -> Iterator[tuple[int, list[str]]]:
    maxsplit = -1  # the first line sets the number of columns; further tabs belong to the last one
    for number, line in enumerate(text.removesuffix("\n").split("\n"), first):
        line = line.removesuffix("\r")
        if line or maxsplit < 0:  # blank lines hold no record
            row = line.split("\t", maxsplit)
            maxsplit = len(row) - 1 if maxsplit < 0 else maxsplit
            yield number, row


def _parse_csv(text: str, path: Path, first: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    return csv_records(io.StringIO(text, newline=""), path, delimiter, first)


def csv_records(
    lines: Iterable[str], path: Path, delimiter: str = ",", first: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, cells) of each record of CSV lines, of which the first has number `first`."""
    reader, start = csv_reader(lines, delimiter), first
    try:
        for cells in reader:
            start = first + reader.line_num
            if cells:  # csv.reader returns [] for a blank line
                yield start - 1, cells
    except csv.Error as error:
        raise csv_error(path, start, first + reader.line_num - 1, error) from error


def csv_error(path: Path, start: int, line: int, error: csv.Error) -> UserError:
    """An error of the CSV syntax at a line, in the record that starts at line `start`."""
    mend = 'Close it; inside a quoted cell a quote is written twice ("").'
    if str(error) == "unexpected end of data":
        return UserError(f'{path}, line {start:,} opens a quote (") that no later line closes. {mend}')
    if start < line:
        return UserError(
            f"{path}, line {line:,} is no CSV: {error}. Its record starts at line {start:,}: is a quote not closed"
            f" there? {mend}"
        )
    return UserError(f"{path}, line {line:,} is no CSV: {error}.")


def csv_reader(lines: Iterable[str], delimiter: str = ",") -> Any:
    """A strict csv.reader without a limit on the size of cells."""
    csv.field_size_limit(sys.maxsize)  # a field of ten megabytes is a long text, not a mistake
    return csv.reader(lines, delimiter=delimiter, strict=True)


def infer_delimiter(rows_by: Callable[[str], list[list[str]]]) -> str:
    """The delimiter under which most rows of a sample have as many columns as the first one, and more than one.

    Spreadsheets of many locales write .csv with semicolons, others with tabs; a few malformed rows are no other layout.
    """
    shares = {}
    for delimiter in ",;\t":
        widths = [len(row) for row in rows_by(delimiter)]
        if widths and widths[0] > 1:
            shares[delimiter] = widths.count(widths[0]) / len(widths)
    best = max(shares, key=lambda delimiter: shares[delimiter], default=",")
    return best if shares.get(best, 0) > 0.5 else ","


def shortened(value: Any) -> str:
    """The beginning of a value as JSON, for messages."""
    dumped = json.dumps(value, ensure_ascii=False)
    return dumped if len(dumped) < 60 else dumped[:60] + "…"
