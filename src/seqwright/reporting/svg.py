"""Line charts as inline SVG: axes with round ticks, legend, and values for tooltips."""

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

MAX_POINTS = 400
"""Maximum number of points drawn per series: about one per pixel of chart width."""
MAX_MARKERS = 30
"""Maximum number of points of a series that are drawn with markers."""
TIME_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400),
)
"""Round tick steps of time axes, in seconds; longer ones are whole days."""
TIME_DECADES = (0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 360000, 3600000)
"""Ticks of logarithmic time axes, in seconds; ratios of about ten."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    points: list[Point]
    color: str
    """A CSS color, as in var(--accent)."""
    style: Literal["line", "faint", "level"] = "line"
    """faint: a thin line for noisy data; level: a dashed reference line."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Title and scale of one axis."""

    title: str = ""
    time: bool = False
    """Values are seconds."""
    log: bool = False
    """Logarithmic scale, x axis only; points with x ≤ 0 are omitted."""
    zero: bool = False
    """Include zero in the range."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Size and margins of a chart, in SVG user units; font sizes are fixed, so a smaller frame has fewer ticks."""

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
    """A figure with title, legend and lines; empty where measured series have fewer than two points in all.

    `marks` are vertical lines at named x positions.
    """
    shown = [replace(s, points=[p for p in s.points if p[0] > 0 or not x.log]) for s in series]
    shown = [s for s in shown if s.points]
    if len({x for s in shown if s.style != "level" for x, _ in s.points}) < 2:
        return Html("")
    y_scale = Scale.over([p[1] for s in shown for p in s.points], y, frame.height - frame.bottom, frame.top)
    left = 14 + 8.5 * max(len(y_scale.label(tick)) for tick in y_scale.ticks)  # room for the longest label
    x_scale = Scale.over([p[0] for s in shown for p in s.points], x, left, frame.width - frame.right)
    drawing = element(
        "svg",
        _axes(x_scale, y_scale, frame),
        *(_marks(name, positions, x_scale, frame, row) for row, (name, positions) in enumerate((marks or {}).items())),
        *(_line(s, x_scale, y_scale) for s in shown),
        element("line", class_="pointer", y1=frame.top, y2=frame.height - frame.bottom),
        viewBox=f"0 0 {frame.width} {frame.height}",
        class_="chart small" if frame.width < WIDE.width else "chart",
        role="img",
        aria_label=f"{title}: {', '.join(s.name for s in shown)}",
    )
    legend = element("span", *map(_legend_entry, shown), class_="legend") if len(shown) > 1 else ""
    return element(
        "figure",
        element("figcaption", element("span", title, class_="title"), legend),
        element("div", drawing, element("div", class_="tip", hidden=True), class_="canvas"),
    )


def downsample(points: list[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points: both ends, and the minimum and maximum of each interval, so that spikes survive."""
    if len(points) <= limit:
        return points
    inner, intervals = len(points) - 2, (limit - 2) // 2
    kept = {0, len(points) - 1}
    for begin, end in itertools.pairwise(1 + inner * i // intervals for i in range(intervals + 1)):
        kept.add(min(range(begin, end), key=lambda i: points[i][1]))
        kept.add(max(range(begin, end), key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def downsampling_note(records: int) -> str:
    """Caption of charts whose points were downsampled; empty where all are drawn."""
    if records <= MAX_POINTS:
        return ""
    return f"Downsampled from {records:,} records to {MAX_POINTS}: the minimum and maximum of each interval."


def strip(value: float, low: float | None, high: float | None, *, over: Point, color: str) -> Html:
    """A value as a dot and its confidence interval as a bar, on the scale `over` shared by the rows of a table."""
    width, pad = 160, 6

    def position(x: float) -> float:
        return _rounded(pad + (x - over[0]) / ((over[1] - over[0]) or 1.0) * (width - 2 * pad))

    bar = Html("")
    if low is not None and high is not None:
        bar = element("line", class_="interval", x1=position(low), x2=position(high), y1=8, y2=8)
    rail = element("line", class_="grid", x1=0, x2=width, y1=8, y2=8)
    dot = element("circle", cx=position(value), cy=8, r=3.4, fill="currentColor")
    return element(
        "svg", rail, bar, dot, viewBox=f"0 0 {width} 16", class_="strip", style=f"color:{color}", aria_hidden="true"
    )


@dataclass(frozen=True)
class Scale:
    """Maps values to SVG coordinates."""

    axis: Axis
    low: float
    high: float
    ticks: list[float]
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], axis: Axis, start: float, end: float) -> Scale:
        """A scale that covers all values; the y axis ends at ticks, the x axis at the data."""
        low, high = min(values), max(values)
        if axis.zero:
            low = min(low, 0.0)
        if low == high:  # a single point or a constant is centered
            low, high = (low * 0.5, low * 1.5) if low > 0 else (low - 1, low + 1)
        label_size = 34 if start > end else 90 if axis.time else 60  # as on phones, where fonts are larger
        max_ticks = abs(end - start) / label_size
        ticks = (_log_ticks if axis.log else _ticks)(low, high, axis, max_ticks)
        if start > end:
            low, high = min(low, ticks[0]), max(high, ticks[-1])
        return cls(axis, low, high, [t for t in ticks if low <= t <= high], start, end)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Short label of a tick."""
        if self.axis.time:
            return duration(tick)
        if tick and (tick if self.axis.log else max(abs(self.low), abs(self.high))) >= 10_000:
            return f"{tick / 1e6:g} M" if abs(tick) >= 1e6 else f"{tick / 1e3:g} k"
        return f"{tick:,g}"

    def exact(self, value: float) -> str:
        """A value as the tooltip shows it."""
        if self.axis.time:
            return duration(value)
        return f"{value:,}" if isinstance(value, int) else figure(value)


def _ticks(low: float, high: float, axis: Axis, max_ticks: float) -> list[float]:
    """About `max_ticks` round values at most, from just below low to just above high."""
    step = (_time_step if axis.time else _round_step)((high - low) / max_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]  # 3 * 0.1 is not 0.3


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _time_step(rough: float) -> float:
    return next((step for step in TIME_STEPS if step >= rough), math.ceil(rough / 86400) * 86400)


def _log_ticks(low: float, high: float, axis: Axis, max_ticks: float) -> list[float]:
    """Powers of ten (or decades of time); finer ticks where fewer than three are between low and high."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = list(TIME_DECADES) if axis.time else [10.0**e for e in exponents]
    if sum(low <= tick <= high for tick in ticks) >= 3:
        return ticks
    ratio = (high / low) ** (1 / max_ticks)
    finer = TIME_STEPS if axis.time else [factor * 10.0**e for e in exponents for factor in (1, 2, 5)]
    kept: list[float] = []
    for tick in finer:
        if low <= tick <= high and (not kept or tick >= kept[-1] * ratio):
            kept.append(tick)
    return kept


def _axes(x_scale: Scale, y_scale: Scale, frame: Frame) -> Html:
    floor, left, right = frame.height - frame.bottom, x_scale.start, x_scale.end
    parts = []
    for tick in y_scale.ticks:
        y = _rounded(y_scale(tick))
        parts.append(element("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
        parts.append(element("text", y_scale.label(tick), x=left - 7, y=y, dy="0.34em", text_anchor="end"))
    for tick in x_scale.ticks:
        x = _rounded(x_scale(tick))
        parts.append(element("line", class_="tick", x1=x, x2=x, y1=floor, y2=floor + 4))
        parts.append(element("text", x_scale.label(tick), x=x, y=floor + 20, text_anchor="middle"))
    parts.append(element("text", x_scale.axis.title, class_="unit", x=right, y=frame.height - 3, text_anchor="end"))
    return join(parts)


def _line(series: Series, x_scale: Scale, y_scale: Scale) -> Html:
    """A polyline, markers where points are few, and values for the tooltip as data attributes."""
    points = downsample(series.points)
    coordinates = [(_rounded(x_scale(x)), _rounded(y_scale(y))) for x, y in points]
    values = [["" if series.style == "level" else x_scale.exact(x), y_scale.exact(y)] for x, y in points]
    line = element(
        "polyline",
        points=" ".join(f"{x},{y}" for x, y in coordinates),
        class_=f"line {series.style}",
        stroke=series.color,
        data_name=series.name,
        data_values=json.dumps(values, ensure_ascii=False, separators=(",", ":")),
    )
    markers = coordinates if series.style == "line" and len(coordinates) <= MAX_MARKERS else []
    return join([line, *(element("circle", cx=x, cy=y, r=2.4, fill=series.color) for x, y in markers)])


def _marks(name: str, positions: Sequence[float], x_scale: Scale, frame: Frame, row: int) -> Html:
    """A vertical line at each x position, the first one labeled on the side that has room."""
    parts = []
    visible = [position for position in positions if x_scale.low <= position <= x_scale.high]
    for position in visible:
        x = _rounded(x_scale(position))
        parts.append(element("line", class_="mark", x1=x, x2=x, y1=frame.top, y2=frame.height - frame.bottom))
        if position == visible[0]:
            shift, anchor = (-5, "end") if x > frame.width / 2 else (5, "start")
            parts.append(element("text", name, x=x + shift, y=frame.top + 10 + 15 * row, text_anchor=anchor))
    return join(parts)


def _legend_entry(series: Series) -> Html:
    return element("span", element("i", style=f"color:{series.color}", class_=series.style), series.name, class_="key")


def _rounded(coordinate: float) -> float:
    return round(coordinate, 1)
