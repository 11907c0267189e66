"""`seqwright runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import JSON, print_json, print_table


@click.command("runs")
@click.argument("folder", default="runs", type=click.Path())
@JSON
def command(folder: str, as_json: bool) -> None:
    """List the runs in FOLDER: how far they are and what they reached."""
    from seqwright.config import UserError
    from seqwright.reporting.numbers import count, duration, figure
    from seqwright.reporting.terminal import Column, table
    from seqwright.run_directory import find_runs

    found = find_runs(Path(folder))
    if not found:
        raise UserError(f"no runs in {folder}; `seqwright train --text FILE` makes one.")
    rows = [_row(path) for path in found]
    if as_json:
        for row in rows:
            print_json(row)
        return
    columns = [
        Column("run", "run"),
        Column("kind", "model"),
        Column("state", "state"),
        Column("parameters", "parameters", count),
        Column("steps", "steps", "{:,}".format),
        Column("seconds", "time", duration),
        Column("bits_per_byte", "bits/byte", figure),
        Column("perplexity", "perplexity", figure),
    ]
    print_table(table(rows, columns))


def _row(path: Path) -> dict[str, Any]:
    from seqwright.config import UserError
    from seqwright.run_directory import RunDirectory

    try:
        run = RunDirectory.open(path)
    except UserError as error:
        return {"run": str(path), "state": f"damaged: {error}"}
    row: dict[str, Any] = {"run": str(path), "kind": run.recipe().get("model", {}).get("kind")}
    if not run.finished:
        steps = run.checkpoints.steps()
        return row | {"state": "unfinished", "steps": steps[-1] if steps else 0}
    summary = run.summary()
    kept = ("parameters", "steps", "seconds", "nll", "bits_per_byte", "bits_per_character", "perplexity")
    return row | {"state": "finished"} | {key: summary.get(key) for key in kept}
