"""Layout inference for labeled files without `data.columns`: label and text columns by header names or by values.

Only unambiguous layouts are inferred; others are errors that name the next move (decision 130).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.data.files import plain_suffix
from seqwright.data.headers import (
    LABEL_NAMES,
    PROPERTY_NAMES,
    SAMPLE_ROWS,
    TEXT_NAMES,
    is_header,
    match_name,
    refuse_repeated,
)
from seqwright.data.records import (
    DELIMITER_NAMES,
    DELIMITERS,
    JSON_LINES,
    RECORD_SUFFIXES,
    csv_delimiter,
    is_quoted,
    parse_object,
    parse_table,
)

TEXTLIKE, LABELLIKE = 0.9, 0.5
"""Share of distinct values in a column: at least the first for texts, at most the second for labels."""
FASTTEXT = "__label__"
"""Label prefix of fastText files."""
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Format of the rows of a file."""

    suffix: str = ""
    """Suffix that selects the parser of records; empty where a separator divides label and text."""
    columns: tuple[str, ...] = ()
    """Label column, then text columns, by name or number from 1."""
    delimiter: str | None = None
    """Delimiter of columns, where it is not that of the suffix."""
    quoted: bool = False
    """Whether a .tsv file is read as a .csv file with tabs, since its cells are quoted."""
    separator: str | None = None
    """What divides label and text, in files without columns."""


def infer_suffix(text: str, path: Path) -> str:
    """The suffix that selects the parser: the file's, or by content .jsonl for objects, .csv for a header with commas,
    .tsv otherwise."""
    suffix = plain_suffix(path)
    if suffix in RECORD_SUFFIXES:
        return suffix
    if text.startswith("{"):
        return JSON_LINES[0]
    header = {cell.strip().lower() for cell in _first_line(text).split(",")}
    return ".csv" if header & set(LABEL_NAMES) and header & set(TEXT_NAMES) else ".tsv"


def infer_layout(text: str, path: Path, *, classes: bool) -> Layout:
    """The layout of a labeled file; `classes`: whether labels are classes, and so repeat."""
    layout = infer_format(text, path)
    if layout.suffix in JSON_LINES:
        keys = list(parse_object(_first_line(text), f"{path}, line 1"))
        return replace(layout, columns=_by_name(keys) or _refuse(keys, path, "keys"))
    first, *rows = sample_rows(text, path, layout)
    if len(first) == 1:
        return Layout(separator=_separator(text, path, layout.suffix))
    columns = _by_name(first) if is_header(first, rows) else two_columns(first, rows, classes=classes)
    if not columns:
        _refuse(first, path, "columns")
    refuse_repeated(columns, first, str(path))
    return replace(layout, columns=columns)


def infer_format(text: str, path: Path) -> Layout:
    """The parser and the delimiter of a file, without its columns."""
    suffix = infer_suffix(text, path)
    if suffix in JSON_LINES:
        return Layout(suffix=suffix)
    if suffix == ".tsv" and is_quoted(text):
        return Layout(suffix=".csv", delimiter=DELIMITERS[suffix], quoted=True)
    delimiter = csv_delimiter(text, path) if suffix == ".csv" else DELIMITERS[suffix]
    return Layout(suffix=suffix, delimiter=delimiter)


def _by_name(names: Sequence[str]) -> tuple[str, ...]:
    """Label and text column by header name; of two columns, one name implies the other. Empty where it is ambiguous."""
    label, text = (match_name(names, known) for known in (LABEL_NAMES, TEXT_NAMES))
    if len(names) > 2 and label is not None and label.strip().lower() in PROPERTY_NAMES:
        return ()
    if len(names) == 2 and (label is None) != (text is None):
        return (label, *(set(names) - {label})) if label is not None else (*(set(names) - {text}), str(text))
    return (label, text) if label is not None and text is not None else ()


def two_columns(first: Sequence[str], rows: Sequence[Sequence[str]], *, classes: bool) -> tuple[str, ...]:
    """The two columns of a file: the label is first, unless the first column is (nearly) all distinct and the second
    repeats. Empty for any other number of columns."""
    if len(first) != 2:
        return ()
    columns = list(zip(*(row for row in (first, *rows) if len(row) == 2), strict=True))
    first_distinct, second_distinct = (len(set(column)) / len(column) for column in columns)
    label = 1 if classes and first_distinct >= TEXTLIKE and second_distinct <= LABELLIKE else 0
    top, *below = (NUMBER.fullmatch(cell.strip()) is not None for cell in columns[label])
    if len(below) > 1 and all(below) and not top:  # a word above numbers is their header
        return first[label], first[1 - label]
    return ("2", "1") if label else ("1", "2")


def _separator(text: str, path: Path, suffix: str) -> str:
    """The separator of label and text in a file without columns: a space, after fastText or numeric labels only."""
    if text.startswith("["):
        raise UserError(f"{path} looks like a JSON array; write one object per line, as a .jsonl file.")
    lines = [line for line in islice(text.split("\n"), SAMPLE_ROWS) if line.strip()]
    labels = [line.split(" ", 1)[0] for line in lines if " " in line.strip()]
    repeated = 2 <= len(set(labels)) <= LABELLIKE * len(lines)
    if len(labels) == len(lines) and (
        all(label.startswith(FASTTEXT) for label in labels) or (repeated and all(map(NUMBER.fullmatch, labels)))
    ):
        return " "
    number, line = next(((n, one) for n, one in enumerate(text.split("\n"), 1) if one.strip()), (1, ""))
    raise UserError(
        f"{path}, line {number} has no {DELIMITER_NAMES[DELIMITERS[suffix]]} between label and text: {line[:60]!r}."
        ' Write `label TAB text`, or set the separator: --set data.separator=" "; text without labels is for a language'
        " model: --text FILE."
    )


def _refuse(names: Sequence[str], path: Path, what: str) -> tuple[str, ...]:
    shown = ", ".join([*(repr(name[:20]) for name in names[:6]), *(["…"] if len(names) > 6 else [])])
    raise UserError(
        f"{path} has {len(names)} {what} ({shown}); name those of label and text (and text2, of a pair), by name or"
        " number from 1: --columns label=NAME,text=NAME."
    )


def sample_rows(text: str, path: Path, layout: Layout) -> list[list[str]]:
    """The first rows of a file with columns."""
    return [row for _, row in islice(parse_table(text, path, layout.suffix, str(layout.delimiter)), SAMPLE_ROWS)]


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0].removesuffix("\r")
