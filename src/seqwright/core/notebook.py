"""Results in notebooks: a dataclass as an HTML table of its fields, every value escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from seqwright.core.printable import printable

ENTRIES = 10
"""Entries shown of a mapping of numbers, the largest, and of a sequence, the first."""

CELL = 60
"""Characters shown of a cell."""
NUMERIC = re.compile(r"[-+0-9.,e%]*")

T = TypeVar("T")


class NotebookTable:
    """Mixin of result dataclasses: `print` and notebooks show name and value of each field that is set."""

    def __str__(self) -> str:
        rows = self._set_fields()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {printable(show(value))}" for name, value in rows)

    def _repr_html_(self) -> str:
        return html_table(self._set_fields())

    def _set_fields(self) -> list[tuple[str, Any]]:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return [(name, value) for name, value in values if value is not None and show(value)]


class ResultList(list[T]):
    """A list of results (dataclasses or mappings of the same keys) that prints as a table; notebooks show it as one."""

    def __str__(self) -> str:
        header, *rows = self._cells() or [[]]
        numeric = [all(NUMERIC.fullmatch(row[n]) for row in rows) for n in range(len(header))]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            for row in (header, *rows)
        ]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        header, *rows = self._cells() or [[]]
        parts = ("".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(header, rows))
        return f"<table>{''.join(f'<tr>{part}</tr>' for part in parts)}</table>"

    def _cells(self) -> list[list[str]]:
        """Names of the columns that have a value, then their cells row by row; nothing of an empty list."""
        records: list[Mapping[str, Any]] = [row if isinstance(row, Mapping) else vars(row) for row in self]
        names = list(dict.fromkeys(name for row in records for name in row))
        names = [name for name in names if any(row.get(name) is not None for row in records)]
        rows = [[_cell(row.get(name)) for name in names] for row in records]
        return [names, *rows] if names else []


def _tagged(header: list[str], rows: list[list[str]]) -> Iterator[tuple[str, list[str]]]:
    yield "th", header
    for row in rows:
        yield "td", row


def _cell(value: Any) -> str:
    text = "" if value is None else " ".join(printable(show(value)).split())
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def html_text(text: str) -> str:
    """Text of fixed width."""
    return f"<pre>{html.escape(printable(text))}</pre>"


def html_table(rows: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values; control characters and markup in them are escaped."""
    style = ' style="text-align: left; white-space: pre-wrap"'
    cells = "".join(
        f"<tr><th{style}>{html.escape(printable(name))}</th><td{style}>{html.escape(printable(show(value)))}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def show(value: Any) -> str:
    """A value in short: numbers to four digits, large mappings and sequences by their first entries."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        numbers = all(isinstance(entry, float | int) for entry in value.values())
        entries = sorted(value.items(), key=lambda entry: -entry[1]) if numbers else list(value.items())
        return _joined([f"{key}: {show(entry)}" for key, entry in entries])
    if isinstance(value, tuple | list):
        return _joined([show(entry) for entry in value])
    if hasattr(value, "shape"):  # an array
        return f"array of shape {tuple(value.shape)}"
    return str(value)


def _joined(entries: list[str]) -> str:
    return ", ".join(entries[:ENTRIES] + ["…"] * (len(entries) > ENTRIES))
