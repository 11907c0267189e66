"""Tables of texts as output: every column of the input, and the results beside them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqwright.core.config import UserError
from seqwright.core.storage import to_json
from seqwright.data.records import DELIMITERS, shortened
from seqwright.data.tables import Table, TableFormat, TableRow

SIGNIFICANT_DIGITS = 6
"""Of added numbers in CSV and TSV cells; JSON has all, and cells of the input stay as they are."""


class TableWriter:
    """Rows of a table with added columns, as lines of text.

    An added column whose name is taken is called `predicted_NAME`; no value of the input is overwritten.
    """

    def __init__(self, table: Table, format: TableFormat, added: Sequence[str]):
        self.format, self.table = format, table
        added = () if format == "text" else added
        taken = [name for name in added if name in table.columns]
        self.names = {name: f"predicted_{name}" if name in taken else name for name in added}
        """Names of added columns in the output, by their usual name."""
        if both := [name for name in taken if self.names[name] in table.columns]:
            raise UserError(
                f"{table.name} has columns '{both[0]}' and '{self.names[both[0]]}'; rename one: a column '{both[0]}' is"
                " to be added."
            )
        self.delimiter = DELIMITERS[".tsv"] if format == "tsv" else table.delimiter if table.format == "csv" else ","
        self.flattened = 0
        """Cells whose tabs or line ends were replaced by spaces, in a TSV file without quoting."""

    def head(self) -> str:
        """The header line; empty where the format or the table has none."""
        if self.format in ("text", "jsonl") or not self.table.header:
            return ""
        return self._joined([*(self.table.names or self.table.columns), *self.names.values()])

    def row(self, row: TableRow, added: Mapping[str, Any]) -> str:
        """A row with the added values; JSON also takes those that are no columns of a table."""
        if self.format == "jsonl":
            return to_json({**row.values, **self._renamed(row, added)}) + "\n"
        return self._joined([*self._kept(row), *(_rounded(added.get(name)) for name in self.names)])

    def unchanged(self, row: TableRow) -> str:
        """A row as it was read."""
        same = row.line and (self.format == self.table.format)
        return f"{row.line}\n" if same else self.row(row, {})

    def _kept(self, row: TableRow) -> list[Any]:
        if extra := [name for name in row.values if name not in self.table.columns]:
            raise UserError(
                f"a JSON object of {self.table.name} has the key '{extra[0]}', which the first one lacks, so that it is"
                f" no column; write JSON lines: --out NAME.jsonl. Found: {shortened(row.values)}."
            )
        return [row.values.get(name) for name in self.table.columns]

    def _renamed(self, row: TableRow, added: Mapping[str, Any]) -> dict[str, Any]:
        return {self._free(self.names.get(name, name), row): value for name, value in added.items()}

    def _free(self, name: str, row: TableRow) -> str:
        """The name of an added value that no key of this row has: JSON objects may differ in their keys."""
        while name in row.values:
            name = f"predicted_{name}"
        return name

    def _joined(self, cells: Sequence[Any]) -> str:
        texts = [_cell(cell) for cell in cells]
        if self.format == "tsv" and not self.table.quoted:
            flat = [" ".join(text.splitlines()).replace("\t", " ") for text in texts]
            self.flattened += sum(one != other for one, other in zip(texts, flat, strict=True))
            return "\t".join(flat) + "\n"
        line = io.StringIO()
        csv.writer(line, delimiter=self.delimiter, lineterminator="\n").writerow(texts)
        return line.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    return f"{value:.{SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else value
