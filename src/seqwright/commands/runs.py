"""`seqwright runs`: a table of the runs in a folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from seqwright.commands.common import COMPLETE_WIDTH, JSON, PIPED_WIDTH, echo, print_json, print_table, table_width

if TYPE_CHECKING:
    from seqwright.reporting.terminal import Column

SORT_KEYS = ("name", "date", "score", "parameters", "time")


OPTIONAL = ("parameters", "tokenizer", "data")
"""Columns that are left out of a piped table, in this order, until it is 120 columns wide."""
SHORTENED = {"data": 14, "tokenizer": 14, "state": 20}
"""Characters that are shown of names, so that a row fits into 120 columns."""


@click.command("runs")
@click.argument("folder", default="runs", type=click.Path())
@click.option("--sort", type=click.Choice(SORT_KEYS), default="name", help="Order of the rows. Default: name.")
@JSON
def command(folder: str, sort: Any, as_json: bool) -> None:
    """List the runs in FOLDER and its subfolders with their data, progress and scores.

    \b
    seqwright runs --sort score
    seqwright runs experiments --sort date --json
    """
    from seqwright.reporting.numbers import count, figure
    from seqwright.reporting.terminal import Column
    from seqwright.runs.listing import listing

    rows = listing(folder, sort=sort)
    if as_json:
        for row in rows:
            print_json(row)
        return
    texts = dict.fromkeys(row["text"] for row in rows if row["text"])
    for row in rows:
        row["date"] = (row.get("date") or "")[:10]
        for key, most in SHORTENED.items():
            name = (row.get(key) or "").removesuffix(", as tuned").partition(" at step ")[0]
            row[key] = name if len(name) <= most else f"{name[: most - 1]}…"
        if row.get("score") is not None:
            row["reached"] = f"{figure(row['score'])} {row['score_name'].replace(' per ', '/')}"
        if row.get("bleu_lowercased") is not None:
            row["reached"] = f"{figure(row['score'])} BLEU, {figure(row['bleu_lowercased'])} lc"
        if len(texts) > 1 and row.get("text"):
            row["reached"] = f"{row.get('reached', '')} ({row['text']})"
    columns = [
        Column("run", "run", wrap=sys.stdout.isatty()),
        Column("kind", "model", wrap=False),
        Column("data", "data", wrap=False),
        Column("tokenizer", "tokenizer", wrap=False),
        Column("state", "state", wrap=False),
        Column("checked", "checked", wrap=False),
        Column("parameters", "parameters", count),
        Column("date", "date", wrap=False),
        Column("reached", "score", wrap=False),
    ]
    columns = [column for column in columns if any(row.get(column.key) for row in rows)]
    _print_fitting(rows, columns)
    if len(texts) > 1:
        echo("Scores of different held-out texts (A, B, …) do not compare; `seqwright evaluate RUN --on FILE` does.")


def _print_fitting(rows: list[dict[str, Any]], columns: list[Column]) -> None:
    """Prints a table; in a pipe it lacks columns rather than parts of names, which are there to be copied."""
    from seqwright.reporting.terminal import table

    finished = all(row["state"] == "finished" for row in rows)
    optional = iter([*(["state"] if finished else []), *OPTIONAL])
    omitted: list[str] = []
    while True:
        shown = table(rows, [column for column in columns if column.key not in omitted])
        shown.collapse_padding = True
        if sys.stdout.isatty() or table_width(shown) <= PIPED_WIDTH or (key := next(optional, None)) is None:
            break
        omitted.append(key)
    print_table(shown, width=COMPLETE_WIDTH)
    if omitted:
        echo(f"left out for width: {', '.join(omitted)}; --json has all.", err=True)
