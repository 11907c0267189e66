"""Heat maps: a matrix as shades, for matrices too large to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from seqwright.reporting.markup import Html, element
from seqwright.studies.explain.figures import Displayed

CELL = 9
"""Pixels of a cell."""


@dataclass(frozen=True)
class HeatMap(Displayed):
    """Numbers from -1 to 1 as shades: one color above zero, another below."""

    name: str
    values: tuple[tuple[float, ...], ...]
    axes: tuple[str, str]
    """What rows and columns are numbers of, from 0."""

    def text(self) -> str:
        return "\n".join([self.name, *("".join(map(_shade, row)) for row in self.values)])

    def as_json(self) -> dict[str, Any]:
        return {"kind": "heat map", "name": self.name, "values": [list(row) for row in self.values]}

    def html(self) -> Html:
        rows, columns = len(self.values), len(self.values[0])
        cells = [self._cell(row, column) for row in range(rows) for column in range(columns)]
        size = {"width": columns * CELL, "height": rows * CELL, "viewBox": f"0 0 {columns * CELL} {rows * CELL}"}
        svg = element("svg", *cells, role="group", aria_label=self.name, **size)
        key = f"rows: {self.axes[0]}, columns: {self.axes[1]}, from 0"
        caption = element("figcaption", element("span", self.name, class_="title"), element("span", key, class_="key"))
        scroll = element("div", svg, class_="scroll drawing", tabindex="0", role="region", aria_label=self.name)
        return element("figure", caption, scroll)

    def _cell(self, row: int, column: int) -> Html:
        value = self.values[row][column]
        about = f"{self.axes[0]} {row}, {self.axes[1]} {column}: {value:.3f}"
        return element(
            "rect",
            element("title", about),
            x=column * CELL,
            y=row * CELL,
            width=CELL - 1,
            height=CELL - 1,
            class_="negative" if value < 0 else None,
            fill_opacity=f"{abs(value):.3f}",
        )


def heat_map(name: str, values: Tensor, axes: tuple[str, str]) -> HeatMap:
    """A figure of a matrix of numbers from -1 to 1."""
    return HeatMap(name, tuple(map(tuple, values.tolist())), axes)


def _shade(value: float) -> str:
    """Two characters, so that a square looks like one; numbers below zero are minus signs."""
    if value < 0:
        return "--" if value < -0.5 else "- "
    return 2 * " ░▒▓█"[min(4, int(5 * value))]
