"""`seqwright import`: a run from another program's model file."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, echo, print_json


@click.command("import")
@click.argument("file", type=click.Path())
@click.option("--run", "run", type=click.Path(), required=True, help="Folder of the new run.")
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, path_type=Path),
    help="tokenizer.json, or its run, that cut the text into tokens. Default: words or characters, as in FILE.",
)
@JSON
def command(file: str, run: str, tokenizer: Path | None, as_json: bool) -> None:
    """Import a model of another program as a run: an n-gram model in ARPA format (plain, .gz or .xz).

    \b
    seqwright import lm.arpa.gz --run runs/lm
    seqwright import notes.arpa --tokenizer runs/notes/tokenizer.json --run runs/notes-again
    """
    from seqwright.data.files import resolve
    from seqwright.interop.formats import importer

    path = resolve(file)
    summary = importer(path)(path, Path(run), tokenizer)
    if as_json:
        print_json({"run": run, "summary": summary})
    else:
        for note in summary["notes"][1:]:
            echo(f"note: {note}", err=True)
        echo(f"{run}: {summary['parameters']:,} parameters; try `seqwright evaluate {run} --on FILE`.")
