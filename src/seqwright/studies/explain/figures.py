"""Figures of an explanation: matrices, tables and trees, each as text for a terminal, JSON and HTML."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.cells import cell_len
from torch import Tensor

from seqwright.reporting import page
from seqwright.reporting.markup import Html, element, join

Cell = str | int | float | None


class Drawn(str):
    """A cell of bars or padded numbers, whose spaces are no white space of a text."""


LINE_WIDTH = 100
"""Columns of a terminal line; wider matrices continue below."""
MAX_ROWS = 60
"""Rows of a table, and of a matrix; the number of those left out is shown."""
MAX_COLUMNS = 128
SYMBOLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "␡", 0x0A: "↵", 0x09: "⇥", 0xA0: "⍽"}
HIDDEN = (
    *range(0x80, 0xA0),
    0xAD,
    0x1680,
    *range(0x2000, 0x200C),
    *range(0x2028, 0x2030),
    0x205F,
    0x2060,
    0x3000,
    0xFEFF,
)
SYMBOLS |= {code: f"\\u{code:04x}" for code in HIDDEN}
"""What is shown in place of white space and control characters, which tokens of bytes and characters may be."""

NOTEBOOK_STYLE = """
.seqwright { --accent: #4a6fd4; --line-1: #4a6fd4; --line-2: #cf5b1f; --line-3: #17866a; --line-4: #8b48b8; }
.seqwright .figures { display: flex; flex-wrap: wrap; gap: 16px 32px; align-items: flex-start; }
.seqwright figure { margin: 0 0 12px; max-width: 100%; overflow-x: auto; }
.seqwright table { border-collapse: collapse; font-size: 13px; }
.seqwright th, .seqwright td { padding: 3px 9px; font-weight: 400; white-space: pre-wrap; }
.seqwright td.number { text-align: right; font-variant-numeric: tabular-nums; }
.seqwright table.matrix td[style] {
  background: color-mix(in srgb, var(--accent) calc(var(--weight) * 50%), transparent); }
.seqwright table.matrix td.negative {
  background: color-mix(in srgb, var(--line-2) calc(var(--weight) * 50%), transparent); }
.seqwright .title { font-weight: 600; }
.seqwright .formula, .seqwright .erratum { padding: 6px 12px; border-left: 3px solid var(--accent); }
.seqwright ul.tree, .seqwright ul.tree ul { list-style: none; padding-left: 18px; }
.seqwright .drawing rect { fill: var(--accent); }
.seqwright .drawing .negative { fill: var(--line-2); }
.seqwright svg.chart { display: block; width: 480px; max-width: 100%; overflow: visible; }
.seqwright svg.chart polyline { fill: none; stroke-width: 2; }
.seqwright svg.chart line { stroke: currentColor; opacity: .2; }
.seqwright svg.chart text { font-size: 12px; fill: currentColor; }
.seqwright svg.chart .pointer { display: none; }
.seqwright .key { margin-left: 14px; }
.seqwright .key i { display: inline-block; width: 14px; margin: 0 5px 4px 0; border-top: 3px solid; }
.seqwright .pruned b { text-decoration: line-through; font-weight: 400; opacity: .6; }
"""


class Figure(Protocol):
    """Part of a step, with a name that is unique in its explanation."""

    @property
    def name(self) -> str: ...

    def text(self) -> str:
        """Lines for a terminal."""
        ...

    def as_json(self) -> dict[str, Any]: ...

    def html(self) -> Html: ...


class Displayed(ABC):
    """Base of figures: notebooks show their HTML."""

    @abstractmethod
    def html(self) -> Html: ...

    def _repr_html_(self) -> str:
        return notebook_html(self.html())


@dataclass(frozen=True)
class Matrix(Displayed):
    """A matrix, vector or scalar with its name, shape and labels."""

    name: str
    values: Any
    """Nested lists of numbers, of as many levels as the shape has sizes (two at most); None for no number."""
    shape: tuple[int, ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    heat: bool = False
    """Shade cells by their value: for weights and probabilities, 0 to 1."""
    signed: bool = False
    """Shade cells by their share of the greatest magnitude, those below zero in another color."""

    @property
    def title(self) -> str:
        """Name and shape: `W_Q (3 × 3)`."""
        return f"{self.name} ({' × '.join(map(str, self.shape))})" if self.shape else self.name

    def text(self) -> str:
        if not self.shape:
            return f"{self.name} = {self._scalar}"
        cells = [["" if value is None else number(value) for value in row] for row in self._grid()]
        labels = [*map(visible, self.rows), *[""] * (len(cells) - len(self.rows))]
        columns = len(cells[0]) if cells else 0
        heads = list(map(visible, self.columns)) or [""] * columns
        widths = [max(map(cell_len, column), default=0) for column in zip(heads, *cells, strict=True)]
        margin = max(map(cell_len, labels), default=0)
        lines = [self.title]
        for block in _blocks(widths, LINE_WIDTH - margin):
            lines += [f"… from column {block[0] + 1}:"] if block[0] else []
            if self.columns:
                lines.append(_line("", margin, [heads[n] for n in block], [widths[n] for n in block]))
            for label, row in zip(labels, cells, strict=True):
                lines.append(_line(label, margin, [row[n] for n in block], [widths[n] for n in block]))
        return "\n".join(lines + self._left_out())

    def as_json(self) -> dict[str, Any]:
        labels = {"rows": list(self.rows), "columns": list(self.columns)}
        return {"kind": "matrix", "name": self.name, "shape": list(self.shape), "values": self.values} | {
            key: names for key, names in labels.items() if names
        }

    def html(self) -> Html:
        if not self.shape:
            return element("p", element("b", self.name), f" = {self._scalar}", class_="scalar")
        head = element(
            "tr", *([element("td")] if self.rows else []), *(_header(visible(name), "col") for name in self.columns)
        )
        rows = []
        for n, values in enumerate(self._grid()):
            label = [_header(visible(self.rows[n]), "row")] if self.rows else []
            rows.append(element("tr", *label, *(self._cell(value) for value in values)))
        parts = ([element("thead", head)] if self.columns else []) + [element("tbody", *rows)]
        caption = element("figcaption", element("span", self.title, class_="title"))
        table = element("table", *parts, class_="matrix", aria_label=self.title)
        notes = [element("p", note, class_="lead") for note in self._left_out()]
        return element("figure", caption, _scrollable(table, self.title), *notes)

    @property
    def _scalar(self) -> str:
        return f"{self.values:,}" if isinstance(self.values, int) else f"{self.values:.6g}"

    def _grid(self) -> list[list[float | None]]:
        """The rows that are shown; a vector is one row."""
        rows = self.values if len(self.shape) == 2 else [self.values]
        return [row[:MAX_COLUMNS] for row in rows[:MAX_ROWS]]

    def _left_out(self) -> list[str]:
        rows = (1, *self.shape)[-2]
        missing = {"rows": rows - MAX_ROWS, "columns": self.shape[-1] - MAX_COLUMNS}
        parts = [f"{count:,} more {axis}" for axis, count in missing.items() if count > 0]
        return [f"… {', '.join(parts)}"] if parts else []

    def _cell(self, value: float | None) -> Html:
        if value is None:
            return element("td")
        weight = None
        if math.isfinite(value) and (self.heat or self.signed):
            weight = abs(value) / self._top if self.signed else min(1.0, max(0.0, value))
        style = None if weight is None else f"--weight: {weight:.3f}"
        kind = "number negative" if self.signed and value < 0 else "number"
        return element("td", number(value), class_=kind, style=style)

    @functools.cached_property
    def _top(self) -> float:
        """The greatest magnitude that is shown."""
        return max(
            [
                1e-12,
                *(abs(value) for row in self._grid() for value in row if value is not None and math.isfinite(value)),
            ]
        )


def matrix(
    name: str,
    values: Any,
    *,
    rows: Iterable[str] = (),
    columns: Iterable[str] = (),
    heat: bool = False,
    signed: bool = False,
) -> Matrix:
    """A figure of a tensor or nested lists."""
    nested = values.detach().tolist() if isinstance(values, Tensor) else values
    shape: list[int] = []
    inner = nested
    while isinstance(inner, list | tuple):
        shape.append(len(inner))
        inner = inner[0] if inner else 0.0
    assert len(shape) <= 2, f"{name} has {len(shape)} axes; show its parts"
    labels = tuple(rows)[:MAX_ROWS], tuple(columns)[:MAX_COLUMNS]
    return Matrix(name, nested, tuple(shape), *labels, heat, signed)


@dataclass(frozen=True)
class Table(Displayed):
    """Rows of text and numbers under named columns."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int
    """Number of rows before those beyond MAX_ROWS were left out."""
    others: str = ""
    """The option that shows those that were left out."""

    def text(self) -> str:
        cells = [[_shown(cell) for cell in row] for row in self.rows]
        numeric = self._numeric()
        widths = [max(map(cell_len, column)) for column in zip(self.columns, *cells, strict=True)]
        widths[-1] = widths[-1] if numeric[-1] else 0  # the last column of text needs no padding
        lines = [self.name]
        for row in (self.columns, *cells):
            aligned = (_pad(cell, width, right=right) for cell, width, right in zip(row, widths, numeric, strict=True))
            lines.append("  ".join(aligned).rstrip())
        return "\n".join(lines + self._left_out())

    def as_json(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"kind": "table", "name": self.name, "rows": rows, "total": self.total}

    def html(self) -> Html:
        numeric = [name for name, right in zip(self.columns, self._numeric(), strict=True) if right]
        rows = [
            [element("code", cell, class_="drawn") if isinstance(cell, Drawn) else _shown(cell) for cell in row]
            for row in self.rows
        ]
        caption = element("figcaption", element("span", self.name, class_="title"))
        notes = [element("p", note, class_="lead") for note in self._left_out()]
        return element("figure", caption, page.table(self.columns, rows, numeric=numeric), *notes)

    def _numeric(self) -> list[bool]:
        """Which columns hold numbers only, and are right-aligned."""
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        return [bool(column) and all(isinstance(cell, int | float | None) for cell in column) for column in columns]

    def _left_out(self) -> list[str]:
        missing = self.total - len(self.rows)
        how = f" ({self.others} shows others)" if self.others else ""
        return [f"… {missing:,} more rows{how}"] if missing else []


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, others: str = "") -> Table:
    """A figure of rows."""
    complete = list(map(tuple, rows))
    return Table(name, tuple(columns), tuple(complete[:MAX_ROWS]), len(complete), others)


@dataclass(frozen=True)
class Branch:
    """A node of a tree with the branches below it."""

    label: str
    note: str = ""
    kept: bool = True
    """Pruned nodes are shown faint, and marked in text."""
    children: tuple[Branch, ...] = ()


@dataclass(frozen=True)
class Tree(Displayed):
    """A tree, such as the candidates of a beam search."""

    name: str
    branches: tuple[Branch, ...]

    def text(self) -> str:
        return "\n".join([self.name, *_tree_lines(self.branches, "")])

    def as_json(self) -> dict[str, Any]:
        return {"kind": "tree", "name": self.name, "branches": [_branch_json(branch) for branch in self.branches]}

    def html(self) -> Html:
        caption = element("figcaption", element("span", self.name, class_="title"))
        return element("figure", caption, _scrollable(_tree_html(self.branches), self.name))


def notebook_html(*content: Html, style: str = "") -> Html:
    """HTML for the cell of a notebook, styled like the pages, in the colors of the notebook; `style` is added."""
    return element("div", element("style", Html(NOTEBOOK_STYLE + style)), *content, class_="seqwright")


def number(value: float | int) -> str:
    """A number with four decimals; integers without, very small and very large ones with four digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if abs(value) < 1e6 and abs(value - round(value)) < 1e-9:
        return str(round(value))
    return f"{value:.4f}" if 1e-4 <= abs(value) < 1e5 else f"{value:.2e}"


def visible(text: str) -> str:
    """The text in one line: line ends, tabs and control characters as symbols, spaces at its ends as ␣, so that tokens
    that differ in white space look different."""
    inner = text.strip(" ")
    start = len(text) - len(text.lstrip(" "))
    return f"{'␣' * start}{inner.translate(SYMBOLS)}{'␣' * (len(text) - start - len(inner))}"


def joined(tokens: Iterable[str]) -> str:
    """Tokens in one line, with their white space visible."""
    return " ".join(map(visible, tokens))


def _shown(cell: Cell) -> str:
    """A cell as it is displayed, with the white space of texts visible."""
    if isinstance(cell, str):
        return cell if isinstance(cell, Drawn) else visible(cell)
    return "" if cell is None else number(cell)


def _pad(text: str, width: int, *, right: bool) -> str:
    spaces = " " * max(0, width - cell_len(text))
    return spaces + text if right else text + spaces


def _line(label: str, margin: int, cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [_pad(cell, width, right=True) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([_pad(label, margin, right=False), *aligned]).rstrip()


def _blocks(widths: Sequence[int], room: int) -> Iterable[list[int]]:
    """Column numbers in blocks that fit a line."""
    block: list[int] = []
    used = 0
    for column, width in enumerate(widths):
        if block and used + width + 2 > room:
            yield block
            block, used = [], 0
        block.append(column)
        used += width + 2
    yield block


def _scrollable(content: Html, name: str) -> Html:
    """A named region that scrolls sideways, also by keyboard."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


def _header(name: str, scope: str) -> Html:
    return element("th", name, scope=scope, class_="number" if scope == "col" else None)


def _tree_lines(branches: Sequence[Branch], indent: str) -> list[str]:
    lines = []
    for n, branch in enumerate(branches):
        last = n == len(branches) - 1
        mark = "" if branch.kept else "  ✗"
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{branch.label}  {branch.note}{mark}".rstrip())
        lines += _tree_lines(branch.children, indent + ("   " if last else "│  "))
    return lines


def _branch_json(branch: Branch) -> dict[str, Any]:
    children = [_branch_json(child) for child in branch.children]
    return {"label": branch.label, "note": branch.note, "kept": branch.kept, "children": children}


def _tree_html(branches: Sequence[Branch]) -> Html:
    items = []
    for branch in branches:
        pruned = "" if branch.kept else element("span", " ✗", title="pruned", aria_label="pruned")
        label = [element("b", branch.label), " ", element("span", branch.note), pruned]
        below = _tree_html(branch.children) if branch.children else ""
        items.append(element("li", join(label), below, class_=None if branch.kept else "pruned"))
    return element("ul", *items, class_="tree")
