"""Classification reports for HTML and terminal: confusion matrix, per-class scores, reliability diagram, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from seqwright.reporting.markup import Html, element, join
from seqwright.reporting.numbers import figure
from seqwright.reporting.page import grid, section, table
from seqwright.reporting.svg import Axis, Series, chart
from seqwright.reporting.terminal import Column
from seqwright.reporting.terminal import table as terminal_table

SHOWN_CLASSES = 30
"""Maximum number of classes in the confusion matrix: the most frequent ones are drawn."""
SIDE_BY_SIDE = 10
"""Maximum number of classes for which the matrix is placed beside the reliability diagram."""
SHOWN_CONFUSIONS = 10
"""Maximum number of confusions in the terminal: the most frequent ones."""
CELL = 34
"""Width of a matrix cell, in SVG user units."""
TEXT_CHARACTERS = 600
"""Maximum number of characters of a misclassified text."""


EMPTY = "''"
"""How an empty label is shown."""


def class_sections(details: Mapping[str, Any]) -> Html:
    """HTML sections of a classifier; empty for other runs."""
    charts = []
    if "confusion" in details:
        charts = [_confusion_matrix(details["classes"], details["confusion"])]
    if "reliability" in details:
        charts.append(_reliability(details["reliability"]))
    wide = len(details.get("classes", ())) > SIDE_BY_SIDE
    parts = [element("div", part, class_="lone") for part in charts] if wide else [grid(charts, "charts")]
    parts.append(_class_table(details.get("per_class", [])))
    lead = "Rows are true classes, columns predicted ones; shades are row-normalized." if charts else ""
    return Html(section("Classes", *parts, lead=lead) + _errors(details.get("mistakes", [])))


def _confusion_matrix(classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """The confusion matrix as SVG."""
    shown = sorted(sorted(range(len(classes)), key=lambda n: -sum(counts[n]))[:SHOWN_CLASSES])
    longest = max(len(_short(classes[n])) for n in shown)
    left, top = 14 + 7 * longest, 22 + 5 * longest  # room for row labels and slanted column labels
    parts = []
    for row, n in enumerate(shown):
        name, center = _short(classes[n]) or EMPTY, (row + 0.5) * CELL
        parts.append(element("text", name, x=left - 8, y=top + center, dy="0.34em", text_anchor="end"))
        rotation = f"rotate(-45 {left + center} {top - 8})"
        parts.append(element("text", name, x=left + center, y=top - 8, transform=rotation))
        for column, predicted in enumerate(shown):
            tooltip = f"{classes[n]} predicted as {classes[predicted]}"
            corner = left + column * CELL, top + row * CELL
            parts.append(_cell(counts[n][predicted], sum(counts[n]), tooltip, corner, diagonal=row == column))
    width, height = left + len(shown) * CELL + 5 * longest, top + len(shown) * CELL + 8
    omitted = len(classes) - len(shown)
    note = element("span", f"{omitted} rarer classes are not shown", class_="key") if omitted else ""
    drawing = element(
        "svg",
        *parts,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label="confusion matrix",
        style=f"max-width:{1.2 * width:.0f}px",
    )
    return element("figure", element("figcaption", element("span", "Confusion matrix", class_="title"), note), drawing)


def _cell(count: int, total: int, tooltip: str, corner: tuple[int, int], *, diagonal: bool) -> Html:
    """One cell: its count, shaded by its share of the row total."""
    x, y = corner
    share = count / max(total, 1)
    square = element(
        "rect",
        element("title", f"{tooltip}: {count:,} of {total:,}"),
        x=x,
        y=y,
        width=CELL - 1,
        height=CELL - 1,
        rx=3,
        fill="var(--accent)" if diagonal else "var(--line-2)",
        opacity=round(0.06 + 0.84 * share, 3),  # an empty cell still differs from the background
    )
    if not count:
        return square
    style = "cell strong" if share > 0.5 else "cell"
    center = {"x": x + CELL / 2, "y": y + CELL / 2, "dy": "0.34em"}
    return join([square, element("text", _count(count), **center, text_anchor="middle", class_=style)])


def _reliability(bins: Sequence[Mapping[str, Any]]) -> Html:
    """Reliability diagram: accuracy by confidence bin; the dashed diagonal is perfect calibration."""
    points = [(row["confidence"], row["accuracy"]) for row in bins]
    ideal = Series(name="perfect calibration", points=[(0.0, 0.0), (1.0, 1.0)], color="var(--quiet)", style="level")
    accuracy = Series(name="accuracy", points=points, color="var(--accent)")
    return chart("Reliability", [ideal, accuracy], x=Axis(title="confidence"), y=Axis(zero=True))


def _class_table(rows: Sequence[Mapping[str, Any]]) -> Html:
    names = ("class", "examples", "predicted", "precision", "recall", "f1")
    cells = [
        (row["class"] or EMPTY, f"{row['examples']:,}", f"{row['answered']:,}", *map(_score, _rates(row)))
        for row in rows
    ]
    return table(names, cells, numeric=names[1:])


def _errors(errors: Sequence[Mapping[str, Any]]) -> Html:
    """The errors with the highest confidence, each a <details> element with its text."""
    entries = [
        element(
            "details",
            element(
                "summary",
                element(
                    "span",
                    f"{row['answered'] or EMPTY} ({row['probability']:.3f}), not {row['label'] or EMPTY}",
                    class_="when",
                ),
                element("span", " ".join(row["text"].split())[:160], class_="peek"),
            ),
            element(
                "div",
                element("b", f"{row['place']}\n"),
                row["text"][:TEXT_CHARACTERS],
                *_explanation(row.get("explanation")),
                class_="sample",
            ),
        )
        for row in errors
    ]
    lead = "Errors with the highest confidence: hard texts and possible label errors."
    return section("Most confident errors", *entries, lead=lead)


def _explanation(explanation: Mapping[str, Any] | None) -> list[Html | str]:
    """The n-grams that contribute most to a prediction, each with its share of the log-odds."""
    if explanation is None:
        return []
    ngrams = ", ".join(f"{ngram['text']!r} {ngram['contribution']:+.2f}" for ngram in explanation["ngrams"])
    rest = f"bias {explanation['bias']:+.2f}, other n-grams {explanation['others']:+.2f}"
    why = f"\n\n{explanation['label']} rather than {explanation['against']}: {explanation['score']:+.2f} nats\n"
    return [element("b", why), f"{ngrams}; {rest}"]


def class_tables(details: Mapping[str, Any]) -> list[Table]:
    """Terminal tables: per-class scores, then the most frequent confusions."""
    rates = [Column(name, name, figure) for name in ("precision", "recall", "f1")]
    columns = [Column("class", "class"), Column("examples", "examples", str), Column("answered", "predicted", str)]
    classes = [{**row, "class": row["class"] or EMPTY} for row in details.get("per_class", [])]
    tables = [terminal_table(classes, [*columns, *rates])]
    if "confusion" in details:
        names = details["classes"]
        confusions = [
            {"true": names[i] or EMPTY, "predicted": names[j] or EMPTY, "examples": count}
            for i, row in enumerate(details["confusion"])
            for j, count in enumerate(row)
            if i != j and count
        ]
        frequent = sorted(confusions, key=lambda row: -int(row["examples"]))[:SHOWN_CONFUSIONS]
        columns = [Column("true", "true"), Column("predicted", "predicted"), Column("examples", "examples", str)]
        tables += [terminal_table(frequent, columns)] if frequent else []
    return tables


def class_report(details: Mapping[str, Any]) -> Iterator[str | Table]:
    """Terminal tables of classes, confusions and the most confident errors; nothing where there are no classes."""
    if details:
        yield from class_tables(details)
    if details.get("mistakes"):
        yield "most confident errors:"
        yield _errors_table(details["mistakes"], Column("probability", "p(predicted)", "{:.2g}".format))


def label_errors_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Likely label errors: misclassified texts with the probability of their label."""
    return _errors_table(rows, Column("of_label", "p(label)", "{:.2g}".format))


def _errors_table(rows: Sequence[Mapping[str, Any]], probability: Column) -> Table:
    """Misclassified texts in order."""
    shortened = [
        {**row, "text": " ".join(row["text"].split())[:100]} | {key: row[key] or EMPTY for key in ("label", "answered")}
        for row in rows
    ]
    columns = [
        *(probability, Column("label", "label"), Column("answered", "predicted")),
        *(Column("place", "location"), Column("text", "text")),
    ]
    return terminal_table(shortened, columns)


def _rates(row: Mapping[str, Any]) -> tuple[float | None, ...]:
    return row["precision"], row["recall"], row["f1"]


def _score(value: float | None) -> str:
    return "–" if value is None else figure(value)


def _short(name: str) -> str:
    return name if len(name) <= 16 else name[:15] + "…"


def _count(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
