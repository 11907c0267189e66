"""Results in notebooks: a dataclass as an HTML table of its fields, every value escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from seqwright.core.printable import printable

ENTRIES = 10
"""Entries shown of a mapping of numbers, the largest, and of a sequence, the first."""


class NotebookTable:
    """Mixin of result dataclasses: notebooks show name and value of each field that is set."""

    def _repr_html_(self) -> str:
        values = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return html_table((name, value) for name, value in values if value is not None and show(value))


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
