"""Pairs from two columns of a CSV or TSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.headers import (
    SAMPLE_ROWS,
    SOURCE_NAMES,
    TARGET_NAMES,
    column_index,
    is_header,
    is_numbered,
    match_name,
    refuse_repeated,
)
from seqwright.data.parallel.formats import Pair
from seqwright.data.records import DELIMITERS, csv_delimiter, describe_row, is_quoted, parse_table, quoted_note

Columns = tuple[int | str, int | str] | None
"""Source and target columns by name or number from 1; None: those with usual names, or the first two."""


def table_pairs(text: str, path: Path, format: Literal["csv", "tsv"], columns: Columns, notes: list[str]) -> list[Pair]:
    """The pairs of a table, with notes on how it is read."""
    delimiter = DELIMITERS[".tsv"]
    if format == "csv" or is_quoted(text):
        delimiter = csv_delimiter(text, path) if format == "csv" else delimiter
        notes += [quoted_note(path)] * (format == "tsv")
        rows = list(parse_table(text, path, ".csv", delimiter))
    else:
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        rows = [(number, line.split(delimiter)) for number, line in enumerate(lines, 1)]
    first = rows[0][1]
    header, source, target = _layout(first, [cells for _, cells in rows[1:SAMPLE_ROWS]], columns, str(path))
    pairs = []
    for number, cells in rows[header:]:
        if len(cells) <= max(source, target):
            raise UserError(
                f"{path}, line {number:,} {describe_row(cells, delimiter)}, but data.columns asks for column"
                f" {1 + max(source, target)}."
            )
        pairs.append(Pair((cells[source],), (cells[target],)))
    if header:
        notes.append(f"{path}: the source is column {first[source]!r}, the target {first[target]!r}.")
    if not pairs:
        raise UserError(f"{path} has a header and no rows below it.")
    return pairs


def _layout(first: list[str], rows: list[list[str]], columns: Columns, name: str) -> tuple[bool, int, int]:
    """Whether the first row is a header, and the indices of source and target."""
    header = is_header(first, rows)
    if columns is None:
        return header, *(_usual(first) if header else (0, 1))
    wanted = tuple(map(str, columns))
    if is_numbered(wanted):
        source, target = (int(column) - 1 for column in wanted)
        return header, source, target
    refuse_repeated(wanted, first, name)
    source, target = (_index(column, first, name) for column in wanted)
    return True, source, target


def _index(column: str, first: list[str], name: str) -> int:
    index = column_index(column, first)
    if index is None:
        shown = ", ".join(repr(one[:40]) for one in first[:12])
        raise UserError(f"{name} has no column '{column}'; it has {shown}.{did_you_mean(column, first)}")
    return index


def _usual(first: Sequence[str]) -> tuple[int, int]:
    """The columns with usual names; of two columns one name implies the other, and without names the first comes
    first."""
    source, target = match_name(first, SOURCE_NAMES), match_name(first, TARGET_NAMES)
    if source is not None and target is not None and source != target:
        return first.index(source), first.index(target)
    if len(first) == 2 and (target == first[0] or source == first[1]):
        return 1, 0
    return 0, 1
