"""`seqwright runs`: a table of the runs in a folder."""

from __future__ import annotations

import click

from seqwright.commands.common import JSON, print_json, print_table


@click.command("runs")
@click.argument("folder", default="runs", type=click.Path())
@JSON
def command(folder: str, as_json: bool) -> None:
    """List the runs in FOLDER with their progress and scores."""
    from seqwright.reporting.numbers import count, duration, figure
    from seqwright.reporting.terminal import Column, table
    from seqwright.runs.listing import listing

    rows = listing(folder)
    if as_json:
        for row in rows:
            print_json(row)
        return
    columns = [
        Column("run", "run"),
        Column("kind", "model"),
        Column("state", "state"),
        Column("checked", "checked"),
        Column("parameters", "parameters", count),
        Column("steps", "steps", "{:,}".format),
        Column("seconds", "training time", duration),
        Column("bits_per_byte", "bits/byte", figure),
        Column("perplexity", "perplexity", figure),
        Column("accuracy", "accuracy", figure),
        Column("bleu", "BLEU", figure),
    ]
    if any(row.get("bleu_lowercased") is not None for row in rows):
        columns.append(Column("bleu_lowercased", "BLEU, lowercased", figure))
    print_table(table(rows, columns))
