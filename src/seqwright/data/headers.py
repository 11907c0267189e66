"""Headers of tables: usual names of columns, by which the first row of a CSV or TSV file is recognized as one."""

from __future__ import annotations

from collections.abc import Sequence

from seqwright.core.config import UserError

LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "intent", "sentiment", "topic", "language", "lang"),
    *("emotion", "polarity", "rating", "stars", "genre", "domain", "gold", "gold_label"),
)
TEXT_NAMES = (
    *("text", "sentence", "review", "content", "document", "utterance", "query", "question", "message", "tweet"),
    *("comment", "body", "description", "title", "headline", "phrase", "input"),
)
"""Header names of label and text columns; the first of each takes precedence over all others."""
PROPERTY_NAMES = ("language", "lang", "domain")
"""Label names that tables with other columns usually have for something else."""
SOURCE_NAMES = ("source", "src", "text", "sentence", "input", "question", "query", "content")
TARGET_NAMES = ("target", "tgt", "translation", "output", "answer", "summary", "reference", "reply")
"""The same of the columns of a pair."""
INDEX_NAMES = ("id", "index", "date", "url")
"""Other usual column names."""
HEADER_NAMES = (*LABEL_NAMES, *TEXT_NAMES, *SOURCE_NAMES, *TARGET_NAMES, *INDEX_NAMES)
SAMPLE_ROWS = 1000
"""Rows from which a layout is inferred."""


def is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row holds a usual column name that does not occur below it, as a class name would."""
    for index, cell in enumerate(first):
        below = [row[index] for row in rows if len(row) > index]
        if cell.strip().lower() in HEADER_NAMES and cell not in below:
            return True
    return False


def match_name(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The name that is the first known one, or the only known one; None where there is none or several."""
    matches = {name.strip().lower(): name for name in names if name.strip().lower() in known}
    return matches.get(known[0]) or (next(iter(matches.values())) if len(matches) == 1 else None)


def is_numbered(columns: Sequence[str]) -> bool:
    """Whether columns are selected by number, from 1; a header or none makes no difference to numbers."""
    return all(column.isdecimal() for column in columns)


def column_index(column: str, header: Sequence[str]) -> int | None:
    """The place of a column under a header, by name or else by number; None where it has none."""
    if column in header:
        return header.index(column)
    return int(column) - 1 if column.isdecimal() and 0 < int(column) <= len(header) else None


def refuse_repeated(columns: Sequence[str], header: Sequence[str], name: str) -> None:
    """Raises where the header of a file names a column more than once that is to be read by name."""
    for column in columns:
        places = [str(number) for number, other in enumerate(header, 1) if other == column]
        if len(places) > 1:
            raise UserError(
                f"{name}: the header names {len(places)} columns {column!r}, {' and '.join(places)}; select columns by"
                " number."
            )
