"""What a page and a terminal show of a classifier: confusion, classes, reliability, and what it got most wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from seqwright.reporting.markup import Html, element, join
from seqwright.reporting.numbers import figure
from seqwright.reporting.page import grid, section, table
from seqwright.reporting.svg import Axis, Series, chart
from seqwright.reporting.terminal import Column
from seqwright.reporting.terminal import table as terminal_table

SHOWN_CLASSES = 30
"""More classes than this make no picture: those with the most examples are drawn."""
SIDE_BY_SIDE = 10
"""Up to so many classes the matrix is read beside the other chart; of more it takes the width of the page."""
CELL = 34
"""User units of a cell of the matrix."""
CHARACTERS = 600
"""Of a text on a page."""


def class_sections(details: Mapping[str, Any]) -> Html:
    """The sections of a page; nothing for runs that do not classify."""
    pictures = []
    if "confusion" in details:
        pictures = [_matrix(details["classes"], details["confusion"]), _reliability(details["reliability"])]
    wide = len(details.get("classes", ())) > SIDE_BY_SIDE
    parts = [element("div", part, class_="lone") for part in pictures] if wide else [grid(pictures, "charts")]
    parts.append(_classes(details.get("per_class", [])))
    lead = (
        "Rows are classes as they are, columns what they were called; shades are shares of a row." if pictures else ""
    )
    return Html(section("Classes", *parts, lead=lead) + _mistakes(details.get("mistakes", [])))


def _matrix(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """The confusion matrix as a picture."""
    shown = sorted(sorted(range(len(classes)), key=lambda n: -sum(counts[n]))[:SHOWN_CLASSES])
    longest = max(len(_short(classes[n])) for n in shown)
    left, top = 14 + 7 * longest, 22 + 5 * longest  # room for the names beside and, slanted, above
    parts = []
    for place, n in enumerate(shown):
        name, middle = _short(classes[n]), (place + 0.5) * CELL
        parts.append(element("text", name, x=left - 8, y=top + middle, dy="0.34em", text_anchor="end"))
        turned = f"rotate(-45 {left + middle} {top - 8})"
        parts.append(element("text", name, x=left + middle, y=top - 8, transform=turned))
        for column, answered in enumerate(shown):
            said = f"{classes[n]} called {classes[answered]}"
            corner = left + column * CELL, top + place * CELL
            parts.append(_cell(counts[n][answered], sum(counts[n]), said, corner, right=place == column))
    width, height = left + len(shown) * CELL + 5 * longest, top + len(shown) * CELL + 8
    hidden = len(classes) - len(shown)
    note = element("span", f"{hidden} rarer classes are not drawn", class_="key") if hidden else ""
    drawing = element(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label="confusion matrix",
        style=f"max-width:{1.2 * width:.0f}px",
    )
    return element("figure", element("figcaption", element("span", "Confusion", class_="title"), note), drawing)


def _cell(many: int, whole: int, said: str, corner: tuple[int, int], *, right: bool) -> Html:
    """So many of a row's examples, as a shade and a number."""
    x, y = corner
    share = many / max(whole, 1)
    square = element(
        "rect",
        element("title", f"{said}: {many:,} of {whole:,}"),
        x=x,
        y=y,
        width=CELL - 1,
        height=CELL - 1,
        rx=3,
        fill="var(--accent)" if right else "var(--line-2)",
        opacity=round(0.06 + 0.84 * share, 3),  # nothing at all can still be told from the ground
    )
    if not many:
        return square
    kind = "cell strong" if share > 0.5 else "cell"
    middle = {"x": x + CELL / 2, "y": y + CELL / 2, "dy": "0.34em"}
    return join([square, element("text", _count(many), **middle, text_anchor="middle", class_=kind)])


def _reliability(bins: Sequence[Mapping[str, Any]]) -> Html:
    """Accuracy over confidence: on the dashed line, probabilities mean what they say."""
    points = [(row["confidence"], row["accuracy"]) for row in bins]
    ideal = Series(name="what it should be", points=[(0.0, 0.0), (1.0, 1.0)], color="var(--quiet)", style="level")
    found = Series(name="accuracy", points=points, color="var(--accent)")
    return chart("Reliability", [ideal, found], x=Axis(title="confidence"), y=Axis(zero=True))


def _classes(rows: Sequence[Mapping[str, Any]]) -> Html:
    names = ("class", "examples", "answered", "precision", "recall", "f1")
    cells = [(row["class"], f"{row['examples']:,}", f"{row['answered']:,}", *map(_share, _rates(row))) for row in rows]
    return table(names, cells, numeric=names[1:])


def _mistakes(mistakes: Sequence[Mapping[str, Any]]) -> Html:
    """The wrong answers that were surest, each opening to its text."""
    shown = [
        element(
            "details",
            element(
                "summary",
                element("span", f"{row['answered']} ({row['probability']:.3f}), not {row['label']}", class_="when"),
                element("span", " ".join(row["text"].split())[:160], class_="peek"),
            ),
            element("div", element("b", f"{row['place']}\n"), row["text"][:CHARACTERS], class_="sample"),
        )
        for row in mistakes
    ]
    lead = "The surest wrong answers: hard texts, and labels that may be wrong themselves."
    return section("Most confidently wrong", *shown, lead=lead)


def class_tables(details: Mapping[str, Any]) -> list[Table]:
    """The same for a terminal: the table of classes, then the confusions that happened, the commonest first."""
    rates = [Column(name, name, figure) for name in ("precision", "recall", "f1")]
    columns = [Column("class", "class"), Column("examples", "examples", str), Column("answered", "answered", str)]
    tables = [terminal_table(details.get("per_class", []), [*columns, *rates])]
    if "confusion" in details:
        names = details["classes"]
        mistaken = [
            {"is": names[i], "called": names[j], "examples": many}
            for i, row in enumerate(details["confusion"])
            for j, many in enumerate(row)
            if i != j and many
        ]
        common = sorted(mistaken, key=lambda row: -int(row["examples"]))[:10]
        named = [Column("is", "is"), Column("called", "called"), Column("examples", "examples", str)]
        tables += [terminal_table(common, named)] if common else []
    return tables


def label_errors_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Texts with improbable labels, the worst first."""
    short = [{**row, "text": " ".join(row["text"].split())[:100]} for row in rows]
    columns = [
        *(Column("of_label", "p(label)", "{:.2g}".format), Column("label", "label"), Column("answered", "answered")),
        *(Column("place", "where"), Column("text", "text")),
    ]
    return terminal_table(short, columns)


def _rates(row: Mapping[str, Any]) -> tuple[float | None, ...]:
    return row["precision"], row["recall"], row["f1"]


def _share(value: float | None) -> str:
    return "–" if value is None else figure(value)


def _short(name: str) -> str:
    return name if len(name) <= 16 else name[:15] + "…"


def _count(many: int) -> str:
    return str(many) if many < 10_000 else f"{many / 1000:.0f}k"
