"""Number formatting and terminal tables."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from seqwright.reporting.numbers import count, duration, figure, interval
from seqwright.reporting.terminal import Column, scatter, scores_table, table
from tests.reporting.made_up_runs import trained_run


def rendered(drawn: Table, width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (999.6, "1.00 k"), (12_345, "12.3 k"), (999_999, "1.00 M"), (1_230_000, "1.23 M"),
     (124_439_808, "124 M"), (174_600_000_000, "175 B"), (3e15, "3000 T")],
)  # fmt: skip
def test_count(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0213, "21.3 ms"), (0.9999, "1 s"),
     (3.14, "3.1 s"), (9.96, "10 s"), (59.7, "1 m"),
     (200, "3 m 20 s"), (3600, "1 h"), (7_510, "2 h 5 m"), (100_000, "1 d 3 h"), (4e10, "1,268 y 142 d")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.500"), (141.19, "141.2"), (12_345.6, "12,346"), (1234.0, "1234"), (0.00031, "0.0003100"),
     (float("nan"), "nan")],
)  # fmt: skip
def test_figure(value: float, text: str) -> None:
    assert figure(value) == text


def test_missing_interval_is_blank() -> None:
    assert interval(1.4, 1.6) == "1.400 – 1.600"
    assert interval(None, None) == ""


def test_scores_without_intervals_say_why() -> None:
    score = {"value": 1.5, "low": 1.4, "high": 1.6, "signature": "nll|tokens:9"}
    assert "No 95 % CI" not in rendered(scores_table({"nll": score}))
    alone = scores_table({"nll": score | {"low": None, "high": None}})
    assert "(hold out more), or evaluation.resamples is 0." in " ".join(rendered(alone).split())


def test_table_leaves_blanks_and_escapes_rich_markup() -> None:
    rows: list[dict[str, object]] = [
        {"run": "[bold]gpt", "parameters": 10_745_088},
        {"run": "ngram", "parameters": None},
        {"run": "other"},
    ]
    text = rendered(table(rows, [Column("run", "run"), Column("parameters", "parameters", count)]))
    assert "[bold]gpt       10.7 M" in text
    assert "None" not in text


def test_scores_table_is_never_truncated() -> None:
    run = trained_run()
    text = rendered(scores_table(run.scores), width=72)
    assert "…" not in text
    assert "4.711" in text
    assert "4.664 – 4.759" in text


def test_scatter_places_points_by_log_x_and_keeps_every_name() -> None:
    points = [("small", 1.0, 2.0), ("middle", 10.0, 1.5), ("other", 10.0, 1.5), ("large", 100.0, 1.0)]
    lines = scatter(points, write_x="{:g} s".format, write_y="{:g}".format, width=20, height=5)
    assert lines == [
        "2 │● small",
        "  │",
        "  │          ● middle",
        "  │          ● other",
        "1 │                    ● large",
        "  └────────────────────",
        "   1 s            100 s",
    ]
    assert scatter(points[:1], write_x=str, write_y=str)  # of one point, no span
