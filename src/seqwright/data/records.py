"""Records from files: JSON lines, CSV and TSV, by the columns that `data.columns` names.

Columns are named by their key or heading, or counted from 1 ("3") in files without a heading. The file's name decides:
.jsonl and .ndjson, .csv (quoted where needed) and .tsv (never quoted; the last column takes what is left of its line).
Whatever does not fit is refused with its file, its line and what was found there.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.files import plain_suffix

JSON_LINES = (".jsonl", ".ndjson")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
NAMES = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
RECORDS = (*JSON_LINES, *DELIMITERS)
LONGEST_HEADING = 40
"""Characters up to which cells may be names of columns; longer ones are text."""

Row = tuple[str, ...]


def holds_records(path: Path) -> bool:
    return plain_suffix(path) in RECORDS


def records(
    text: str,
    path: Path,
    columns: Sequence[str],
    *,
    line: int = 1,
    heading: str = "",
    suffix: str | None = None,
    delimiter: str | None = None,
    scalars: Sequence[str] = (),
    lists: Sequence[str] = (),
) -> Iterator[Row]:
    """The wanted columns of each record in a file's text; the path is for its kind (unless `suffix` says it, and
    `delimiter` what parts the columns of a .csv) and for messages.

    A file may be read in parts: `line` is the number of a part's first line, `heading` the first record of the file
    where the part is not the first. Numbers and booleans stand for their JSON text in columns that are named in
    `scalars`, and lists of strings for their items with commas between them in those of `lists`; they are refused in
    others.
    """
    suffix = suffix or plain_suffix(path)
    if suffix in JSON_LINES:
        return _json_lines(text, path, columns, line, scalars, lists)
    first = line - heading.count("\n")
    delimiter = delimiter or DELIMITERS[suffix]
    found = _table(cells(heading + text, path, suffix, delimiter, first), path, columns, delimiter)
    return islice(found, 1, None) if heading and _counted(columns) else found


def cells(text: str, path: Path, suffix: str, delimiter: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """The line on which each record of a table ends, and all of its columns."""
    return _quoted(text, path, first, delimiter) if suffix == ".csv" else _tabbed(text, first)


def record_ends(text: str, path: Path, line: int) -> Iterator[int]:
    """Where the records of a part of a CSV file end, but for a last one that goes on in the next part."""
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for line in io.StringIO(text, newline=""):
            read += len(line)
            yield line

    reader = _reader(lines())
    try:
        for _ in reader:
            yield read
    except csv.Error as error:
        if read < len(text):
            raise _no_csv(path, line + reader.line_num - 1, error) from error


def object_of(line: str, place: str) -> dict[str, Any]:
    """The object of a line of JSON lines; the place is for messages."""
    if not line.strip():
        raise UserError(f"{place} is empty; JSON lines hold one object each. Delete it.")
    try:
        found = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place} is no JSON object: {error}. Found: {line[:60]!r}.") from None
    if not isinstance(found, dict):
        raise UserError(f"{place} holds {_short(found)}, not an object with keys.")
    return found


def _json_lines(
    text: str, path: Path, columns: Sequence[str], first: int, scalars: Sequence[str], lists: Sequence[str]
) -> Iterator[Row]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), first):
        place = f"{path}, line {number:,}"
        found = object_of(line, place)
        row = []
        for column in columns:
            if column not in found:
                raise UserError(f"{place} has no key '{column}'.{did_you_mean(column, found)}")
            value = found[column]
            if column in scalars and isinstance(value, bool | int | float):
                value = json.dumps(value)
            elif _is_list(value) and column in lists:
                value = ",".join(value)
            elif _is_list(value) and column in scalars:
                raise UserError(f"{place}: '{column}' is {_short(value)}; data.labels = \"several\" reads such lists.")
            if not isinstance(value, str):
                raise UserError(f"{place}: '{column}' is {_short(value)}, not a string.")
            row.append(value)
        yield tuple(row)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a key that it has twice is an error, since one of the two values would be lost."""
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"the key '{twice[0]}' stands there twice")
    return dict(pairs)


def _table(rows: Iterable[tuple[int, list[str]]], path: Path, columns: Sequence[str], delimiter: str) -> Iterator[Row]:
    rest = iter(rows)
    line, first = next(rest, (0, []))
    if not first:
        raise UserError(f"{path} holds no records.")
    if _counted(columns):
        wanted = [int(column) - 1 for column in columns]
        if not all(0 <= place < len(first) for place in wanted):
            asked = ", ".join(columns)
            raise UserError(f"{path}, line {line} {_found(first, delimiter)}; data.columns asks for {asked}.")
        yield tuple(first[place] for place in wanted)
    else:
        twice = [name for name, count in Counter(first).items() if count > 1]
        if twice:
            raise UserError(f'{path}: two columns are headed \'{twice[0]}\'; rename one, or count columns: "1", "2".')
        for column in columns:
            if column not in first:
                near = did_you_mean(column, first) if max(map(len, first)) <= LONGEST_HEADING else ""
                raise UserError(
                    f"{path} has no column '{column}': its first line {_found(first, delimiter)}.{near} Other columns"
                    " are named with --set data.columns=[…]."
                )
        wanted = [first.index(column) for column in columns]
    for line, row in rest:
        if len(row) != len(first):
            raise UserError(
                f"{path}, line {line:,} {_found(row, delimiter)}, where the first line has {len(first)}; mend the line."
            )
        yield tuple(row[place] for place in wanted)


def _counted(columns: Sequence[str]) -> bool:
    return all(column.isdecimal() for column in columns)


def _found(row: list[str], delimiter: str) -> str:
    """What a line holds, and what it may have been separated by instead."""
    text = delimiter.join(row)
    others = [name for other, name in NAMES.items() if other != delimiter and other in text]
    hint = f" (is it separated by {others[0]}s?)" if len(row) == 1 and others else ""
    return f"has {len(row)} {NAMES[delimiter]}-separated column(s){hint}: {text[:60]!r}"


def _tabbed(text: str, first: int) -> Iterator[tuple[int, list[str]]]:
    width = -1
    for number, line in enumerate(text.removesuffix("\n").split("\n"), first):
        line = line.removesuffix("\r")
        if line or width < 0:  # blank lines hold no record
            row = line.split("\t", width)
            width = len(row) - 1 if width < 0 else width
            yield number, row


def _quoted(text: str, path: Path, first: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = _reader(io.StringIO(text, newline=""), delimiter)
    try:
        for row in reader:
            if row:  # the end of the file
                yield first + reader.line_num - 1, row
    except csv.Error as error:
        raise _no_csv(path, first + reader.line_num - 1, error) from error


def _no_csv(path: Path, line: int, error: csv.Error) -> UserError:
    return UserError(f"{path}, line {line:,} is no CSV: {error}.")


def _reader(lines: Iterable[str], delimiter: str = ",") -> Any:
    csv.field_size_limit(sys.maxsize)  # a field of ten megabytes is a long text, not a mistake
    return csv.reader(lines, delimiter=delimiter, strict=True)


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) < 60 else shown[:60] + "…"
