"""`seqwright import`: a run from another program's model file."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, echo, print_json


@click.command("import")
@click.argument("file", type=click.Path())
@click.option("--run", "run", type=click.Path(), required=True, help="Folder of the new run.")
@JSON
def command(file: str, run: str, as_json: bool) -> None:
    """Import a model of another program as a run: an n-gram model in ARPA format (plain, .gz or .xz).

    \b
    seqwright import lm.arpa.gz --run runs/lm
    """
    from seqwright.data.files import resolve
    from seqwright.interop.formats import importer

    path = resolve(file)
    summary = importer(path)(path, Path(run))
    if as_json:
        print_json({"run": run, "summary": summary})
    else:
        echo(f"{run}: {summary['parameters']:,} parameters; try `seqwright evaluate {run} --on FILE`.")
