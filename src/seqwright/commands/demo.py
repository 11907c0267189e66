"""`seqwright demo`: a ladder of language models on a built-in corpus, compared."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, echo, print_json, print_parts, resumable


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
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.studies.demo import demo

    with resumable(), TerminalProgress(quiet=quiet or as_json) as progress:
        trained = demo(Path(folder), progress, minutes=minutes)
    if as_json:
        print_json(trained.as_json())
        return
    print_parts(trained.printed())
    best = min(trained.rungs, key=lambda rung: rung.summary["bits_per_byte"])
    echo(f"report: {trained.page}\ntry:    seqwright generate {best.path} 'The'")
