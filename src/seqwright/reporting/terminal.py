"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from seqwright.reporting.numbers import figure, interval
from seqwright.reporting.run_facts import title


@dataclass(frozen=True)
class Column:
    """One column of a table: which key of a row it shows, and how."""

    key: str
    title: str
    write: Callable[[Any], str] | None = None
    """How a number is written, flush right; without it the value is shown as text."""


def table(rows: Iterable[Mapping[str, Any]], columns: Iterable[Column]) -> Table:
    """Rows under columns. Keys that a row lacks or that are None stay blank; text is never read as rich's markup."""
    columns = list(columns)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for column in columns:  # long text is folded rather than cut: a signature must be readable to its end
        drawn.add_column(
            Text(column.title), justify="right" if column.write else "left", no_wrap=bool(column.write), overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(Text(_cell(row.get(column.key), column)) for column in columns))
    return drawn


def scores_table(scores: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every score with its interval."""
    rows = [
        {**score, "score": title(name, scores), "interval": interval(score.get("low"), score.get("high"))}
        for name, score in scores.items()
    ]
    columns = [Column("score", "score"), Column("value", "value", figure), Column("interval", "95 % interval", str)]
    return table(rows, columns)


def signature(scores: Mapping[str, Mapping[str, Any]]) -> str:
    """How scores were taken, as one line: their signatures less their own names, which are one and the same."""
    several = dict.fromkeys(str(score.get("signature", "")).partition("|")[2] for score in scores.values())
    return " ; ".join(several)


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return ""
    return column.write(value) if column.write else str(value)


def named_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Of each type of span: how often it is there and answered, and how well."""
    counts = [Column(key, key, "{:,}".format) for key in ("examples", "answered")]
    rates = [Column(key, key, "{:.2f}".format) for key in ("precision", "recall", "f1")]
    return table(rows, [Column("class", "span"), *counts, *rates])


def back_off_table(answers: Iterable[Any]) -> Table:
    """For each token of a text, which n-gram answered and what the longer contexts passed on."""
    rows = [
        {
            "token": repr(answer.token),
            "probability": answer.probability,
            "order": answer.order,
            "context": " ".join(map(repr, answer.context)),
            "count": answer.count,
            "discount": answer.discount,
            "weights": " × ".join(f"{weight:.4g}" for weight in answer.weights),
        }
        for answer in answers
    ]
    columns = [
        Column("token", "token"),
        Column("probability", "probability", figure),
        Column("order", "order", str),
        Column("context", "after"),
        Column("count", "count", str),
        Column("discount", "discount", figure),
        Column("weights", "passed on"),
    ]
    return table(rows, columns)


def ngrams_table(types: Sequence[int], discounts: Sequence[Sequence[float]]) -> Table:
    """How many n-grams of each length there are, and what is taken from counts of 1, 2, and 3 or more."""
    rows = [
        {"n": n, "types": many, "D1": taken[0], "D2": taken[1], "D3": taken[2]}
        for n, (many, taken) in enumerate(zip(types, discounts, strict=True), 1)
    ]
    numbers = [Column(key, title, "{:.6g}".format) for key, title in (("D1", "D1"), ("D2", "D2"), ("D3", "D3+"))]
    return table(rows, [Column("n", "order", str), Column("types", "types", str), *numbers])
