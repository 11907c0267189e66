"""Parsers for records: JSON lines, CSV and TSV, reduced to the columns that `data.columns` names.

Columns are selected by key or header name, or by number from 1 ("3"), whether there is a header or not. The suffix
selects the parser: .jsonl and .ndjson, .csv (RFC 4180 quoting) and .tsv (the last column takes the rest of its line;
where all quotes are those of CSV, as .csv). Malformed records are errors that name the file, the line and its content.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.core.printable import quantity
from seqwright.data.files import COLUMNAR, plain_suffix
from seqwright.data.headers import SAMPLE_ROWS, column_index, is_header, is_numbered, refuse_repeated

JSON_LINES = (".jsonl", ".ndjson")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
DELIMITER_NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
RECORD_SUFFIXES = (*JSON_LINES, *DELIMITERS)
OPEN_QUOTE = "unexpected end of data"
"""Python's error where the text ends in a quoted cell."""
QUOTING_LINES = 10_000
"""Lines of a .tsv file that tell whether it is quoted."""
MAX_HEADER_CELL = 40
"""Characters up to which a cell may be a column name; longer cells are text."""

Row = tuple[str, ...]


def holds_records(path: Path) -> bool:
    """Whether the suffix of a file is one of records."""
    return plain_suffix(path) in (*RECORD_SUFFIXES, *COLUMNAR)


def records(
    text: str,
    path: Path,
    columns: Sequence[str],
    *,
    line: int = 1,
    header: str = "",
    suffix: str | None = None,
    delimiter: str | None = None,
) -> Iterator[Row]:
    """The selected columns of each record of a file's text, as `parse_records` has them; malformed ones are raised."""
    parsed = parse_records(text, path, columns, line=line, header=header, suffix=suffix, delimiter=delimiter)
    for row in parsed:
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
    if suffix == ".tsv" and delimiter is None and is_quoted(text):
        suffix, delimiter = ".csv", DELIMITERS[suffix]
    if suffix in JSON_LINES:
        return _json_lines(text, path, columns, line, scalars, lists)
    first = line - header.count("\n")
    delimiter = delimiter or DELIMITERS[suffix]
    return _table(
        parse_table(header + text, path, suffix, delimiter, first), path, columns, delimiter, later=bool(header)
    )


def parse_table(text: str, path: Path, suffix: str, delimiter: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, cells) of each record of a CSV or TSV text."""
    return _parse_csv(text, path, first, delimiter) if suffix == ".csv" else _parse_tsv(text, first)


def is_quoted(text: str, *, cut: bool = False) -> bool:
    """Whether a tab-separated text is quoted as CSV is, as pandas and spreadsheets write it: in its first lines some
    cells begin with a quote, each of these ends with one and doubles those inside, and all records have equally many
    cells. The last record of a `cut` text may go on."""
    lines = text.split("\n", QUOTING_LINES)
    if len(lines) > QUOTING_LINES:
        cut = lines.pop() != "" or cut
    opening = [number for number, line in enumerate(lines, 1) if line.startswith('"') or '\t"' in line]
    if not opening:
        return False
    reader, end, widths, spans = csv_reader((f"{line}\n" for line in lines), DELIMITERS[".tsv"]), 0, set(), False
    try:
        for row in reader:
            end, begin = reader.line_num, end
            widths |= {len(row)} if row else set()
            spans = spans or end > begin + 1
    except csv.Error as error:
        if not cut or str(error) != OPEN_QUOTE:
            return False
    # Lines of equally many cells are records as they are: a cell that is a quote does not go on to the next of these.
    plain = spans and len({line.count("\t") for line in lines if line}) == 1
    return len(widths) == 1 and opening[0] <= end and not plain


def quoted_note(path: Path) -> str:
    """A note for the user on a .tsv file that is read as quoted."""
    return f"{path}: its cells are quoted, and read as those of a .csv file."


def record_ends(text: str, path: Path, line: int, delimiter: str = ",") -> Iterator[int]:
    """Character offsets at which the records of a CSV block end, without a last record that the block cuts off."""
    offset = 0

    def lines() -> Iterator[str]:
        nonlocal offset
        for line in io.StringIO(text, newline=""):
            offset += len(line)
            yield line

    reader, start = csv_reader(lines(), delimiter), line
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
    rows: Iterable[tuple[int, list[str]]], path: Path, columns: Sequence[str], delimiter: str, *, later: bool
) -> Iterator[Row | UserError]:
    """The selected columns; of a `later` block, the first row is that of the file, which came with the first block."""
    rest = iter(rows)
    line, first = next(rest, (0, []))
    if not first:
        raise UserError(f"{path} holds no records.")
    sample = list(islice(rest, SAMPLE_ROWS))
    if is_numbered(columns):
        indices = [int(column) - 1 for column in columns]
        if not all(0 <= index < len(first) for index in indices):
            numbers = ", ".join(columns)
            raise UserError(f"{path}, line {line} {describe_row(first, delimiter)}; data.columns asks for {numbers}.")
        if not later and not is_header(first, [row for _, row in sample]):
            yield tuple(first[index] for index in indices)
    else:
        refuse_repeated(columns, first, str(path))
        found = [(column, column_index(column, first)) for column in columns]
        for column, index in found:
            if index is None:
                hint = did_you_mean(column, first) if max(map(len, first)) <= MAX_HEADER_CELL else ""
                raise UserError(
                    f"{path} has no column '{column}': its first line {describe_row(first, delimiter)}.{hint} Name"
                    " others with --columns ROLE=NAME."
                )
        indices = [index for _, index in found if index is not None]
    for line, row in chain(sample, rest):
        if len(row) == len(first):
            yield tuple(row[index] for index in indices)
        else:
            yield UserError(
                f"{path}, line {line:,} {describe_row(row, delimiter)}, where the first line has {len(first)}; fix the"
                " line."
            )


def describe_row(row: list[str], delimiter: str) -> str:
    """The number of columns and the text of a line, with a guess at the delimiter where it has one column only, or at
    quoting where a quote is open."""
    text = delimiter.join(row)
    others = [name for other, name in DELIMITER_NAMES.items() if other != delimiter and other in text]
    hint = f" (is it separated by {others[0]}s?)" if len(row) == 1 and others else ""
    if delimiter == DELIMITERS[".tsv"] and text.count('"') % 2:
        hint = (
            " (does a quoted cell go on in another line? Quotes are those of a .csv file only where every cell that"
            " begins with one ends with one, and doubles those inside)"
        )
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
    if str(error) == OPEN_QUOTE:
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


def csv_delimiter(text: str, path: Path) -> str:
    """The delimiter of a CSV text, by its first rows."""

    def rows_by(delimiter: str) -> list[list[str]]:
        try:
            return [cells for _, cells in islice(parse_table(text, path, ".csv", delimiter), SAMPLE_ROWS)]
        except UserError:  # quotes are unbalanced under it
            return []

    return infer_delimiter(rows_by)


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
