"""`seqwright sweep`: many settings of a recipe, trained and ranked by validation score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import (
    COLUMNS,
    JSON,
    SKIP_LABELED,
    MultiValueCommand,
    echo,
    on_files,
    print_json,
    print_parts,
    resumable,
)
from seqwright.commands.train import command as train_command

DATA = ("text", "pairs", "chat", "labeled", "masked", "tagged", "images", "captions")
SHARED = ("recipe", *DATA, "valid", "base")
"""Arguments and options of `train` that name the data and the base of a sweep, too."""


@click.command("sweep", cls=MultiValueCommand)
@click.option("--model", metavar="KIND", help="Short for --set model.kind=KIND.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=A,B,C",
    help="Values of a recipe key, or a range LOW..HIGH for --random; one value is for all runs. May be repeated.",
)
@click.option("--seeds", type=click.IntRange(1), default=1, help="Runs of each setting, with seeds 1, 2, …")
@click.option("--random", "count", type=click.IntRange(2), metavar="N", help="Random search: N random settings.")
@click.option(
    "--halving", is_flag=True, help="Successive halving: the best third are trained again with three times the steps."
)
@click.option("--minutes", type=click.FloatRange(0, min_open=True), metavar="N", help="Time budget of each run.")
@on_files("Test data, read once, by the chosen setting alone.")
@click.option("--run", "folder", type=click.Path(), help="Folder of the runs. Default: runs/NAME-sweep.")
@click.option("--quiet", "-q", is_flag=True, help="Hide progress.")
@COLUMNS
@SKIP_LABELED
@JSON
def command(
    overrides: tuple[str, ...],
    seeds: int,
    count: int | None,
    halving: bool,
    minutes: float | None,
    on: tuple[str, ...],
    folder: str | None,
    quiet: bool,
    columns: tuple[str, ...],
    skip_bad_rows: bool,
    as_json: bool,
    **shared: Any,
) -> None:
    """Sweep keys of RECIPE, or of the default recipe of your own data: train every setting and choose on validation.

    Runs are ordinary runs below one folder. The same command resumes a sweep that was stopped; finished runs are not
    trained again.

    \b
    seqwright sweep --labeled reviews.tsv --model cnn --set training.learning_rate=1e-4,1e-3,1e-2 --seeds 3
    seqwright sweep --text notes.txt --set training.steps=500 --set model.width=64,128,256 --set model.layers=2,4
    seqwright sweep shakespeare-cpu --set training.learning_rate=1e-4..1e-2 --set model.dropout=0,0.1,0.2 --random 8
    seqwright sweep --tagged train.tsv --model lstm --set training.steps=900 --set model.width=32,64,128 --halving
    """
    from seqwright.api import sweep
    from seqwright.reporting.progress import TerminalProgress

    files = {name: value or None for name, value in shared.items()}
    with resumable(), TerminalProgress(quiet=quiet or as_json) as progress:
        result = sweep(
            **files,
            columns=columns,
            set=[
                *overrides,
                *([] if minutes is None else [f"training.minutes={minutes}"]),
                *["data.bad_rows=skip"] * skip_bad_rows,
            ],
            seeds=seeds,
            random=count,
            halving=halving,
            on=on,
            run=folder,
            progress=progress,
        )
    for note in result.results.notes:
        echo(f"warning: {note}", err=True)
    report = result.write_html(Path(result.results.folder) / "report.html")
    if as_json:
        print_json(result.as_json())
        return
    print_parts(result.printed())
    echo(f"report: {report}")


command.params[:0] = [parameter for parameter in train_command.params if parameter.name in SHARED]
