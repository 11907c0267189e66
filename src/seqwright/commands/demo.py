"""`seqwright demo`: a ladder of language models on a built-in corpus, compared."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, echo, print_json, print_table


@click.command("demo")
@click.option("--run", "folder", type=click.Path(), default="runs/demo", show_default=True, help="Folder of the runs.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Time budget for all networks together. Default: a few minutes' worth of steps.",
)
@click.option("--quiet", "-q", is_flag=True, help="Hide progress.")
@JSON
def command(folder: str, minutes: float | None, quiet: bool, as_json: bool) -> None:
    """Train a ladder of language models, from n-grams to GPT, on a corpus that ships with Python, and compare them.

    Takes a few minutes on a laptop CPU. Run it again to resume, or to print the results once more.
    """
    from seqwright.reporting.numbers import count, duration, figure
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.demo import demo

    with TerminalProgress(quiet=quiet or as_json) as progress:
        rungs, page = demo(Path(folder), progress, minutes=minutes)
    if as_json:
        rows = [{"name": r.name, "run": str(r.path), "summary": r.summary, "sample": r.sample} for r in rungs]
        print_json({"runs": rows, "report": str(page)})
        return
    keys = ("parameters", "seconds", "perplexity", "bits_per_byte")
    rows = [{"name": rung.name} | {key: rung.summary[key] for key in keys} for rung in rungs]
    columns = [
        Column("name", "model"),
        Column("parameters", "parameters", count),
        Column("seconds", "training time", duration),
        Column("perplexity", "perplexity", figure),
        Column("bits_per_byte", "bits/byte", figure),
    ]
    print_table(table(rows, columns))
    for rung in rungs:
        echo(f"{rung.name}: {' '.join(rung.sample.split())}\n")
    best = min(rungs, key=lambda rung: rung.summary["bits_per_byte"])
    echo(f"report: {page}\ntry:    seqwright generate {best.path} 'The'")
