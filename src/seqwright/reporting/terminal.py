"""Rich tables for the terminal."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seqwright.core.printable import printable
from seqwright.reporting.numbers import figure, interval
from seqwright.reporting.run_facts import title

TEXT_WIDTH = 120
"""Columns of text that is not written to a terminal."""
NO_INTERVAL = (
    "No 95 % CI: what is scored has too few rows, documents or blocks of text to resample (hold out more), or"
    " evaluation.resamples is 0."
)


@dataclass(frozen=True)
class Column:
    """One column: the key of a row that it shows, its title and its number format."""

    key: str
    title: str
    write: Callable[[Any], str] | None = None
    """Formatter of numbers, right-aligned; without it the value is shown as text."""
    wrap: bool = True
    """Whether text may be wrapped where the table is too wide; numbers never are."""


def table(rows: Iterable[Mapping[str, Any]], columns: Iterable[Column]) -> Table:
    """A rich table; missing and None values are blank, and text is never parsed as rich markup."""
    columns = list(columns)
    rich_table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:  # fold rather than truncate: a signature must be complete
        rich_table.add_column(
            Text(column.title),
            justify="right" if column.write else "left",
            no_wrap=bool(column.write) or not column.wrap,
            overflow="fold",
        )
    for row in rows:
        rich_table.add_row(*(Text(_cell(row.get(column.key), column)) for column in columns))
    return rich_table


def scatter(
    points: Sequence[tuple[str, float, float]],
    *,
    write_x: Callable[[float], str],
    write_y: Callable[[float], str],
    width: int = 48,
    height: int = 8,
) -> list[str]:
    """Lines of a chart of named points (name, x, y), x > 0 on a log scale; names that would overlap move down."""
    xs, ys = [math.log(x) for _, x, _ in points], [y for _, _, y in points]
    x_span, y_span = (max(values) - min(values) or 1.0 for values in (xs, ys))
    rows = [""] * height
    for (name, _, y), x in sorted(zip(points, xs, strict=True), key=lambda one: (-one[0][2], one[1])):
        column, row = round((x - min(xs)) / x_span * width), round((max(ys) - y) / y_span * (height - 1))
        while row < len(rows) and len(rows[row]) > column:  # taken
            row += 1
        rows += [""] * (row + 1 - len(rows))
        rows[row] = rows[row].ljust(column) + f"● {name}  "
    labels = {0: write_y(max(ys)), height - 1: write_y(min(ys))}
    margin = max(map(len, labels.values()))
    lines = [f"{labels.get(n, ''):>{margin}} │{row}".rstrip() for n, row in enumerate(rows)]
    first, last = (write_x(bound(x for _, x, _ in points)) for bound in (min, max))
    return [*lines, f"{'':{margin}} └{'─' * width}", f"{'':{margin}}  {first}{last:>{width - len(first)}}"]


def as_text(parts: Iterable[str | Table]) -> str:
    """Lines and tables as plain text, for `print` in Python."""
    console = Console(file=io.StringIO(), width=TEXT_WIDTH, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        for part in parts:
            console.print(Text(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def scores_table(scores: Mapping[str, Mapping[str, Any]], baseline: Mapping[str, Any] | None = None) -> Table:
    """A table of scores with 95 % confidence intervals, beside those of a counted baseline."""
    counted = baseline or {}
    rows = [
        {**score, "score": title(name, scores), "interval": interval(score.get("low"), score.get("high"))}
        | {"baseline": counted.get(name)}
        for name, score in scores.items()
    ]
    columns = [Column("score", "score"), Column("value", "value", figure), Column("interval", "95 % CI", str)]
    shown = table(rows, columns + ([Column("baseline", f"{counted['model']} baseline", figure)] if counted else []))
    if not any(row["interval"] for row in rows):
        shown.caption = Text(NO_INTERVAL)
        shown.caption_justify = "left"
    return shown


def signature(scores: Mapping[str, Mapping[str, Any]], fingerprint: str) -> str:
    """The signatures of scores, without metric names, and the saved model they belong to: one line, or a line for the
    scores of each signature."""
    names: dict[str, list[str]] = {}
    for name, score in scores.items():
        names.setdefault(str(score.get("signature", "")).partition("|")[2], []).append(name)
    model = f"|model:{fingerprint[:8]}" if fingerprint else ""
    if len(names) == 1:
        return f"{next(iter(names))}{model}"
    return "\n".join(f"{', '.join(of)}: {shared}{model}" for shared, of in names.items())


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return ""
    return printable(column.write(value) if column.write else str(value))


def spans_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Precision, recall and F1 by type of span."""
    counts = [Column("examples", "examples", "{:,}".format), Column("answered", "predicted", "{:,}".format)]
    rates = [Column(key, key, "{:.2f}".format) for key in ("precision", "recall", "f1")]
    return table(rows, [Column("class", "span"), *counts, *rates])


def back_off_table(tokens: Iterable[Any]) -> Table:
    """The n-gram used for each token of a text, (count - discount) / total + interpolated and back-off weights."""
    rows = [
        {
            "token": repr(token.token),
            "probability": token.probability,
            "order": token.order,
            "context": " ".join(map(repr, token.context)),
            "count": token.count,
            "discount": token.discount,
            "total": token.total,
            "interpolated": token.interpolated,
            "weights": " × ".join(f"{weight:.4g}" for weight in token.weights),
        }
        for token in tokens
    ]
    columns = [
        Column("token", "token"),
        Column("probability", "probability", figure),
        Column("order", "order", str),
        Column("context", "context"),
        Column("count", "count", str),
        Column("discount", "discount", figure),
        Column("total", "total", str),
        Column("interpolated", "interpolated", figure),
        Column("weights", "back-off weights"),
    ]
    return table(rows, columns)


def ngrams_table(types: Sequence[int], discounts: Sequence[Sequence[float]]) -> Table:
    """Number of n-gram types of each order and the discounts of counts 1, 2 and 3 or more (modified Kneser-Ney)."""
    rows = [
        {"n": n, "types": count, "D1": discount[0], "D2": discount[1], "D3": discount[2]}
        for n, (count, discount) in enumerate(zip(types, discounts, strict=True), 1)
    ]
    numbers = [Column(key, title, "{:.6g}".format) for key, title in (("D1", "D1"), ("D2", "D2"), ("D3", "D3+"))]
    return table(rows, [Column("n", "order", str), Column("types", "types", str), *numbers])
