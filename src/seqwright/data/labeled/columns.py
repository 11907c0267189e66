"""Which columns of a labeled file hold label and text, where nobody says: by headings, or by what stands in them.

Only what can hardly be meant otherwise is recognized; the rest is refused with the next move.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from seqwright.core.config import UserError
from seqwright.data.files import plain_suffix
from seqwright.data.records import DELIMITERS, JSON_LINES, NAMES, RECORDS, cells, object_of

LABEL_NAMES = (
    *("label", "labels", "class", "category", "target", "intent", "sentiment", "topic", "language", "lang"),
    *("emotion", "polarity", "rating", "stars", "genre", "domain", "gold", "gold_label"),
)
TEXT_NAMES = (
    *("text", "sentence", "review", "content", "document", "utterance", "query", "question", "message", "tweet"),
    *("comment", "body", "description", "title", "headline", "phrase", "input"),
)
"""What such columns are called; the first of each is taken before all others."""
SEEN = 1000
"""Rows that are looked at."""
TEXTLIKE, LABELLIKE = 0.9, 0.5
"""Shares of different values in a column: from the first on they are texts, up to the second labels."""
FASTTEXT = "__label__"
"""How labels begin in files for fastText."""
NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the rows of a file are written."""

    suffix: str = ""
    """As which kind of records they are read; none where a separator parts label and text."""
    columns: tuple[str, ...] = ()
    """Label, then text, by name or counted from 1."""
    delimiter: str | None = None
    """What parts columns, where the suffix does not say."""
    separator: str | None = None


def kind_of(text: str, path: Path) -> str:
    """The suffix that a file should have: objects are JSON lines and a heading with commas is that of a .csv, whatever
    they are called."""
    suffix = plain_suffix(path)
    if suffix in RECORDS:
        return suffix
    if text.startswith("{"):
        return JSON_LINES[0]
    first = {cell.strip().lower() for cell in _line(text).split(",")}
    return ".csv" if first & set(LABEL_NAMES) and first & set(TEXT_NAMES) else ".tsv"


def layout(text: str, path: Path, *, classes: bool) -> Layout:
    """How a file is written of which nothing is said; `classes`: whether labels are classes, which repeat."""
    found = columnless(text, path)
    if found.suffix in JSON_LINES:
        keys = list(object_of(_line(text), f"{path}, line 1"))
        return replace(found, columns=_by_name(keys) or _refuse(keys, path, "keys"))
    first, *rows = _seen(text, path, found)
    if len(first) == 1:
        return Layout(separator=_separator(text, path, found.suffix))
    columns = _by_name(first) if _is_heading(first, rows) else _by_values(first, rows, classes=classes)
    return replace(found, columns=columns or _refuse(first, path, "columns"))


def columnless(text: str, path: Path) -> Layout:
    """As which records a file is read, and what parts its columns, whichever are wanted."""
    suffix = kind_of(text, path)
    if suffix in JSON_LINES:
        return Layout(suffix=suffix)
    others = [sign for sign in ",;\t" if suffix == ".csv" and _even(text, path, sign)]
    return Layout(suffix=suffix, delimiter=next(iter(others), DELIMITERS[suffix]))


def _even(text: str, path: Path, sign: str) -> bool:
    """Whether a sign parts all rows that are looked at into the same number of columns."""
    try:
        widths = {len(row) for row in _seen(text, path, Layout(suffix=".csv", delimiter=sign))}
    except UserError:  # quotes that this sign leaves open
        return False
    return len(widths) == 1 and widths != {1}


def bare(text: str, path: Path, parts: int) -> Layout:
    """How a file is written whose texts (so many a row) have no labels; without columns where it has others as well."""
    found = columnless(text, path)
    if found.suffix in JSON_LINES:
        name = _only(list(object_of(_line(text), f"{path}, line 1")), TEXT_NAMES)
        return replace(found, columns=(name,) if parts == 1 and name is not None else ())
    first, *rows = _seen(text, path, found)
    if len(first) != parts:
        return found
    counted = tuple(str(n) for n in range(1, parts + 1))
    return replace(found, columns=tuple(first) if _is_heading(first, rows) else counted)


def _by_name(names: Sequence[str]) -> tuple[str, ...]:
    """Label and text by what they are called; of two columns, one name tells the other. Nothing where it is unclear."""
    label, text = (_only(names, wanted) for wanted in (LABEL_NAMES, TEXT_NAMES))
    if len(names) == 2 and (label is None) != (text is None):
        return (label, *(set(names) - {label})) if label is not None else (*(set(names) - {text}), str(text))
    return (label, text) if label is not None and text is not None else ()


def _only(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    found = {name.strip().lower(): name for name in names if name.strip().lower() in wanted}
    return found.get(wanted[0]) or (next(iter(found.values())) if len(found) == 1 else None)


def _is_heading(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row holds a known name that no row repeats."""
    for place, cell in enumerate(first):
        below = [row[place] for row in rows if len(row) > place]
        if cell.strip().lower() in (*LABEL_NAMES, *TEXT_NAMES) and cell not in below:
            return True
    return False


def _by_values(first: Sequence[str], rows: Sequence[Sequence[str]], *, classes: bool) -> tuple[str, ...]:
    """The only two columns there are; the label comes first, unless what comes first is different in every row and what
    comes last is not."""
    if len(first) != 2:
        return ()
    columns = list(zip(*(row for row in (first, *rows) if len(row) == 2), strict=True))
    one, other = (len(set(column)) / len(column) for column in columns)
    label = 1 if classes and one >= TEXTLIKE and other <= LABELLIKE else 0
    above, *below = (NUMBER.fullmatch(cell.strip()) is not None for cell in columns[label])
    if len(below) > 1 and all(below) and not above:  # a word above numbers is their heading
        return first[label], first[1 - label]
    return ("2", "1") if label else ("1", "2")


def _separator(text: str, path: Path, suffix: str) -> str:
    """What parts label and text in a file without columns: a space, after labels that cannot be words of the text."""
    if text.startswith("["):
        raise UserError(f"{path} looks like a JSON array; write its objects one a line, as a .jsonl file.")
    lines = [line for line in islice(text.split("\n"), SEEN) if line.strip()]
    labels = [line.split(" ", 1)[0] for line in lines if " " in line.strip()]
    repeated = 2 <= len(set(labels)) <= LABELLIKE * len(lines)
    if len(labels) == len(lines) and (
        all(label.startswith(FASTTEXT) for label in labels) or (repeated and all(map(NUMBER.fullmatch, labels)))
    ):
        return " "
    raise UserError(
        f"{path}, line 1 has no {NAMES[DELIMITERS[suffix]]} between label and text: {_line(text)[:60]!r}. Write"
        ' `label TAB text`, or name what parts them: --set data.separator=" ".'
    )


def _refuse(found: Sequence[str], path: Path, what: str) -> tuple[str, ...]:
    shown = ", ".join([*(repr(cell[:20]) for cell in found[:6]), *(["…"] if len(found) > 6 else [])])
    how = (
        """: --set 'data.columns=["y","x"]'"""
        if what == "keys"
        else """, by heading or counted from 1: --set data.columns=[1,3] or 'data.columns=["y","x"]'"""
    )
    raise UserError(
        f"{path} has {len(found)} {what} ({shown}); say which hold label and text, or label and the two texts of a"
        f" pair{how}."
    )


def _seen(text: str, path: Path, found: Layout) -> list[list[str]]:
    return [row for _, row in islice(cells(text, path, found.suffix, str(found.delimiter)), SEEN)]


def _line(text: str) -> str:
    return text.split("\n", 1)[0].removesuffix("\r")
