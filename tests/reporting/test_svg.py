"""Charts: scales, ticks and downsampling."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwright.reporting.svg import Axis, Point, Scale, Series, chart, downsample

LINEAR, LOG = Axis(title="step"), Axis(title="step", log=True)


def test_downsampling_keeps_ends_and_spikes() -> None:
    rng = random.Random(1)
    points: list[Point] = [(i, rng.random()) for i in range(10_000)]
    points[5_003] = (5_003, 40.0)
    points[7_001] = (7_001, -40.0)
    kept = downsample(points)
    assert len(kept) <= 400
    assert {points[0], points[-1], points[5_003], points[7_001]} <= set(kept)
    assert kept == sorted(kept)


def test_downsampling_keeps_few_points() -> None:
    points: list[Point] = [(i, i * i) for i in range(400)]
    assert downsample(points) == points


@pytest.mark.parametrize(
    ("low", "high", "axis", "labels"),
    [
        (0, 20_000, LINEAR, ["0", "5 k", "10 k", "15 k", "20 k"]),
        (0, 1_000, LINEAR, ["0", "200", "400", "600", "800", "1,000"]),
        (0, 90, Axis(time=True), ["0 s", "30 s", "1 m", "1 m 30 s"]),
        (0, 0.3, Axis(time=True), ["0 s", "100 ms", "200 ms", "300 ms"]),
        (0, 400_000, Axis(time=True), ["0 s", "1 d", "2 d", "3 d", "4 d"]),
        (0.2, 70, Axis(time=True, log=True), ["1 s", "10 s", "1 m"]),
        (20, 400, Axis(time=True, log=True), ["30 s", "1 m", "2 m", "5 m"]),
        (10, 100_000, LOG, ["10", "100", "1,000", "10 k", "100 k"]),
    ],
)
def test_ticks_are_round(low: float, high: float, axis: Axis, labels: list[str]) -> None:
    scale = Scale.over([low, high], axis, 0, 420)
    assert [scale.label(tick) for tick in scale.ticks] == labels


@given(st.lists(st.floats(1e-6, 1e6), min_size=1), st.booleans(), st.booleans(), st.booleans())
def test_scale_covers_every_value(values: list[float], log: bool, time: bool, upward: bool) -> None:
    start, end = (200, 10) if upward else (40, 460)
    scale = Scale.over(values, Axis(log=log and not upward, time=time and not upward, zero=upward), start, end)
    low, high = sorted((start, end))
    assert all(low - 1e-6 <= scale(value) <= high + 1e-6 for value in [*values, *scale.ticks])
    assert len(scale.ticks) <= 16


def test_chart_without_points_is_empty() -> None:
    assert chart("Loss", [Series(name="a", points=[], color="red")], x=LINEAR, y=Axis()) == ""
    assert chart("Loss", [Series(name="a", points=[(0, 1.0)], color="red")], x=LOG, y=Axis()) == ""


def test_chart_of_one_point_is_empty() -> None:
    point = Series(name="a", points=[(5, 1.0)], color="red")
    level = Series(name="baseline", points=[(0, 2.0), (5, 2.0)], color="red", style="level")
    assert chart("Loss", [point, level], x=LINEAR, y=Axis()) == ""
    assert chart("Loss", [point, Series(name="b", points=[(6, 1.0)], color="red")], x=LINEAR, y=Axis()) != ""


@pytest.mark.parametrize("points", [[(0, 1.0), (1, 1.0)], [(1, -3.0), (2, -3.5)]])
def test_constants_and_negative_values_are_drawn(points: list[Point]) -> None:
    drawn = chart("Loss", [Series(name="a", points=points, color="red")], x=LINEAR, y=Axis())
    assert drawn.count("<circle") == len(points)
    numbers = [float(n) for n in re.findall(r'c[xy]="([^"]+)"', drawn)]
    assert all(math.isfinite(n) and 0 <= n <= 480 for n in numbers)


def test_marks_outside_the_axis_are_omitted() -> None:
    series = [Series(name="a", points=[(10, 1.0), (20, 0.5)], color="red")]
    drawn = chart("Loss", series, x=LINEAR, y=Axis(), marks={"resumed": [0, 15]})
    assert drawn.count('class="mark"') == 1
    assert drawn.count(">resumed<") == 1
