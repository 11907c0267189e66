"""Line charts as inline SVG: axes with round ticks, a legend, and the values that a pointer asks for."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seqwright.reporting.markup import Html, element, join
from seqwright.reporting.numbers import duration, figure

Point = tuple[float, float]

DRAWN = 400
"""Points drawn of one series: about one for each pixel of a chart's width."""
DOTTED = 30
"""A series of at most so many points shows each of them as a dot."""
TIMES = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400),
)
"""Round stretches of time, in seconds; longer ones are whole days."""
DECADES_OF_TIME = (0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 360000, 3600000)
"""Round times about a factor of ten apart."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    points: list[Point]
    color: str
    """A CSS color, as in var(--accent)."""
    style: Literal["line", "faint", "level"] = "line"
    """faint: a noisy line that stands behind; level: a dashed line to compare with."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """How one direction of a chart is measured and labeled."""

    title: str = ""
    time: bool = False
    """Values are seconds."""
    log: bool = False
    """Along x only: equal ratios are equally far apart, and values that are not positive are left out."""
    zero: bool = False
    """Starts at zero, whatever the lowest value is."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The size of a chart in user units; text keeps its size, so a smaller frame is a coarser chart."""

    width: int = 480
    height: int = 264
    right: int = 20
    top: int = 10
    bottom: int = 40


WIDE = Frame()
SMALL = Frame(width=320, height=168)


def chart(
    title: str,
    series: Sequence[Series],
    *,
    x: Axis,
    y: Axis,
    frame: Frame = WIDE,
    marks: Mapping[str, Sequence[float]] | None = None,
) -> Html:
    """A figure with its title, legend and lines; nothing where there is nothing to draw.

    `marks` are named moments on the x axis.
    """
    shown = [replace(s, points=[p for p in s.points if p[0] > 0 or not x.log]) for s in series]
    shown = [s for s in shown if s.points]
    if not shown:
        return Html("")
    upward = Scale.over([p[1] for s in shown for p in s.points], y, frame.height - frame.bottom, frame.top)
    left = 14 + 7.5 * max(len(upward.label(tick)) for tick in upward.ticks)  # room for the longest label
    across = Scale.over([p[0] for s in shown for p in s.points], x, left, frame.width - frame.right)
    drawing = element(
        "svg",
        _axes(across, upward, frame),
        *(_marks(name, moments, across, frame, row) for row, (name, moments) in enumerate((marks or {}).items())),
        *(_line(s, across, upward) for s in shown),
        element("line", class_="pointer", y1=frame.top, y2=frame.height - frame.bottom),
        viewBox=f"0 0 {frame.width} {frame.height}",
        class_="chart small" if frame.width < WIDE.width else "chart",
        role="img",
        aria_label=f"{title}: {', '.join(s.name for s in shown)}",
    )
    legend = element("span", *map(_key, shown), class_="legend") if len(shown) > 1 else ""
    return element(
        "figure",
        element("figcaption", element("span", title, class_="title"), legend),
        element("div", drawing, element("div", class_="tip", hidden=True), class_="canvas"),
    )


def thin(points: list[Point], limit: int = DRAWN) -> list[Point]:
    """At most `limit` of the points: the ends, and the lowest and highest of each stretch, so that spikes survive."""
    if len(points) <= limit:
        return points
    inner, stretches = len(points) - 2, (limit - 2) // 2
    kept = {0, len(points) - 1}
    for begin, end in itertools.pairwise(1 + inner * i // stretches for i in range(stretches + 1)):
        kept.add(min(range(begin, end), key=lambda i: points[i][1]))
        kept.add(max(range(begin, end), key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def thinning(records: int) -> str:
    """What to tell the reader of charts over so many records."""
    if records <= DRAWN:
        return ""
    return f"Of {records:,} records {DRAWN} are drawn: the lowest and highest of each stretch."


def strip(value: float, low: float | None, high: float | None, *, over: Point, color: str) -> Html:
    """A value as a dot and its interval as a bar, on a scale shared by the rows of a table."""
    width, pad = 160, 6

    def place(at: float) -> float:
        return _at(pad + (at - over[0]) / ((over[1] - over[0]) or 1.0) * (width - 2 * pad))

    bar = Html("")
    if low is not None and high is not None:
        bar = element("line", class_="interval", x1=place(low), x2=place(high), y1=8, y2=8)
    rail = element("line", class_="grid", x1=0, x2=width, y1=8, y2=8)
    dot = element("circle", cx=place(value), cy=8, r=3.4, fill="currentColor")
    return element(
        "svg", rail, bar, dot, viewBox=f"0 0 {width} 16", class_="strip", style=f"color:{color}", aria_hidden="true"
    )


@dataclass(frozen=True)
class Scale:
    """From values to places on the drawing."""

    axis: Axis
    low: float
    high: float
    ticks: list[float]
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], axis: Axis, start: float, end: float) -> Scale:
        """A scale on which all values have a place. Upwards it ends at ticks; along the x axis, at the values."""
        low, high = min(values), max(values)
        if axis.zero:
            low = min(low, 0.0)
        if low == high:  # a single moment or a constant stands in the middle of some room
            low, high = (low * 0.5, low * 1.5) if low > 0 else (low - 1, low + 1)
        room = 34 if start > end else 90 if axis.time else 60  # what a label takes on a phone, where letters are larger
        wanted = abs(end - start) / room
        ticks = (_log_ticks if axis.log else _ticks)(low, high, axis, wanted)
        if start > end:
            low, high = min(low, ticks[0]), max(high, ticks[-1])
        return cls(axis, low, high, [t for t in ticks if low <= t <= high], start, end)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """A tick in as few characters as tell it from its neighbors."""
        if self.axis.time:
            return duration(tick)
        if tick and (tick if self.axis.log else max(abs(self.low), abs(self.high))) >= 10_000:
            return f"{tick / 1e6:g} M" if abs(tick) >= 1e6 else f"{tick / 1e3:g} k"
        return f"{tick:,g}"

    def exact(self, value: float) -> str:
        """A value as the pointer reads it."""
        if self.axis.time:
            return duration(value)
        return f"{value:,}" if isinstance(value, int) else figure(value)


def _ticks(low: float, high: float, axis: Axis, wanted: float) -> list[float]:
    """At most about `wanted` round values from just below low to just above high."""
    step = (_time_step if axis.time else _round_step)((high - low) / wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]  # 3 * 0.1 is not 0.3


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _time_step(rough: float) -> float:
    return next((step for step in TIMES if step >= rough), math.ceil(rough / 86400) * 86400)


def _log_ticks(low: float, high: float, axis: Axis, wanted: float) -> list[float]:
    """Powers of ten, or the like in time; where fewer than three fall between low and high, closer ones."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = list(DECADES_OF_TIME) if axis.time else [10.0**e for e in exponents]
    if sum(low <= tick <= high for tick in ticks) >= 3:
        return ticks
    apart = (high / low) ** (1 / wanted)
    finer = TIMES if axis.time else [factor * 10.0**e for e in exponents for factor in (1, 2, 5)]
    kept: list[float] = []
    for tick in finer:
        if low <= tick <= high and (not kept or tick >= kept[-1] * apart):
            kept.append(tick)
    return kept


def _axes(across: Scale, upward: Scale, frame: Frame) -> Html:
    floor, left, right = frame.height - frame.bottom, across.start, across.end
    parts = []
    for tick in upward.ticks:
        at = _at(upward(tick))
        parts.append(element("line", class_="grid", x1=left, x2=right, y1=at, y2=at))
        parts.append(element("text", upward.label(tick), x=left - 7, y=at, dy="0.34em", text_anchor="end"))
    for tick in across.ticks:
        at = _at(across(tick))
        parts.append(element("line", class_="tick", x1=at, x2=at, y1=floor, y2=floor + 4))
        parts.append(element("text", across.label(tick), x=at, y=floor + 20, text_anchor="middle"))
    parts.append(element("text", across.axis.title, class_="unit", x=right, y=frame.height - 3, text_anchor="end"))
    return join(parts)


def _line(series: Series, across: Scale, upward: Scale) -> Html:
    """The line, its dots where they are few, and the values behind them for the pointer."""
    points = thin(series.points)
    places = [(_at(across(x)), _at(upward(y))) for x, y in points]
    values = [["" if series.style == "level" else across.exact(x), upward.exact(y)] for x, y in points]
    line = element(
        "polyline",
        points=" ".join(f"{x},{y}" for x, y in places),
        class_=f"line {series.style}",
        stroke=series.color,
        data_name=series.name,
        data_values=json.dumps(values, ensure_ascii=False, separators=(",", ":")),
    )
    dots = places if series.style == "line" and len(places) <= DOTTED else []
    return join([line, *(element("circle", cx=x, cy=y, r=2.4, fill=series.color) for x, y in dots)])


def _marks(name: str, moments: Sequence[float], across: Scale, frame: Frame, row: int) -> Html:
    """An upright at each moment; the first carries the name, on the side that has room."""
    parts = []
    moments = [moment for moment in moments if across.low <= moment <= across.high]
    for moment in moments:
        at = _at(across(moment))
        parts.append(element("line", class_="mark", x1=at, x2=at, y1=frame.top, y2=frame.height - frame.bottom))
        if moment == moments[0]:
            shift, anchor = (-5, "end") if at > frame.width / 2 else (5, "start")
            parts.append(element("text", name, x=at + shift, y=frame.top + 10 + 15 * row, text_anchor=anchor))
    return join(parts)


def _key(series: Series) -> Html:
    return element("span", element("i", style=f"color:{series.color}", class_=series.style), series.name, class_="key")


def _at(place: float) -> float:
    return round(place, 1)
