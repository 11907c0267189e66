"""Line charts as figures of an explanation: sparklines in a terminal, SVG on pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from seqwright.reporting.markup import Html
from seqwright.reporting.svg import Axis, Series
from seqwright.reporting.svg import chart as svg_chart
from seqwright.studies.explain.figures import Displayed, number

COLORS = ("var(--line-1)", "var(--line-2)", "var(--line-3)", "var(--line-4)")
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Chart(Displayed):
    """Named lines over the same x values, on a logarithmic y axis where `log`."""

    name: str
    over: str
    """What the x axis is."""
    x: tuple[float, ...]
    lines: Mapping[str, Sequence[float]]
    log: bool = False

    def text(self) -> str:
        finite = [y for line in self.lines.values() for y in map(self._height, line) if y is not None]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        margin = max(map(cell_len, self.lines), default=0)
        scale = " (logarithmic)" if self.log else ""
        rows = [
            f"{name}{' ' * (margin - cell_len(name))}  {''.join(self._bar(y, low, high) for y in line)}"
            f"  {self._end(line[0])} … {self._end(line[-1])}"
            for name, line in self.lines.items()
        ]
        return "\n".join([f"{self.name}{scale}, {self.over} {number(self.x[0])} to {number(self.x[-1])}", *rows])

    def _end(self, y: float) -> str:
        return f"{y:.3g}" if self.log else number(y)

    def as_json(self) -> dict[str, Any]:
        lines = {name: list(line) for name, line in self.lines.items()}
        return {"kind": "chart", "name": self.name, "over": self.over, "x": list(self.x), "lines": lines}

    def html(self) -> Html:
        heights = {name: [self._height(y) for y in line] for name, line in self.lines.items()}
        series = [
            Series(
                name=name,
                points=[(x, y) for x, y in zip(self.x, line, strict=True) if y is not None],
                color=COLORS[n % len(COLORS)],
            )
            for n, (name, line) in enumerate(heights.items())
        ]
        title = f"{self.name} (powers of ten)" if self.log else self.name
        return svg_chart(title, series, x=Axis(title=self.over), y=Axis(zero=not self.log))

    def _height(self, y: float) -> float | None:
        """Where a value is drawn; None where it cannot be."""
        if self.log:
            return math.log10(y) if y > 0 and math.isfinite(y) else None
        return y if math.isfinite(y) else None

    def _bar(self, y: float, low: float, high: float) -> str:
        height = self._height(y)
        if height is None:
            return " "
        return BARS[round((height - low) / (high - low) * (len(BARS) - 1))] if high > low else BARS[0]
