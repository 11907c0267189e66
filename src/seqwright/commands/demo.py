"""`seqwright demo`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, print_json, print_table


@click.command("demo")
@click.option("--run", "folder", type=click.Path(), default="runs/demo", show_default=True, help="Where the runs go.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@JSON
def command(folder: str, quiet: bool, as_json: bool) -> None:
    """Train a ladder of language models, from counting to attention, on a text every machine has, and compare them.

    Takes a few minutes on a laptop's CPU. Run it again to see the results, or to go on where it stopped.
    """
    from seqwright.reporting.numbers import count, duration, figure
    from seqwright.reporting.progress import TrainingProgress
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.demo import demo

    with TrainingProgress(quiet=quiet or as_json) as progress:
        rungs, page = demo(Path(folder), progress)
    if as_json:
        rows = [{"name": r.name, "run": str(r.path), "summary": r.summary, "sample": r.sample} for r in rungs]
        print_json({"runs": rows, "report": str(page)})
        return
    kept = ("parameters", "seconds", "perplexity", "bits_per_byte")
    rows = [{"name": rung.name} | {key: rung.summary[key] for key in kept} for rung in rungs]
    columns = [
        Column("name", "model"),
        Column("parameters", "parameters", count),
        Column("seconds", "training", duration),
        Column("perplexity", "perplexity", figure),
        Column("bits_per_byte", "bits/byte", figure),
    ]
    print_table(table(rows, columns))
    for rung in rungs:
        click.echo(f"{rung.name}: {' '.join(rung.sample.split())}\n")
    best = min(rungs, key=lambda rung: rung.summary["bits_per_byte"])
    click.echo(f"report: {page}\ntry:    seqwright generate {best.path} 'The '")
