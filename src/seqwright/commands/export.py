"""`seqwright export`: a model in another program's format."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, RUN, echo, print_json


@click.command("export")
@RUN
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--to", "to", metavar="FORMAT", required=True, help="arpa: n-gram models, for KenLM, SRILM and other toolkits."
)
@JSON
def command(run: str, file: str, to: str, as_json: bool) -> None:
    """Export the model of RUN to FILE in another program's format.

    \b
    seqwright export runs/ptb-ngram --to arpa ptb.arpa.gz
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import pick
    from seqwright.interop.formats import EXPORTS

    facts = pick(to, EXPORTS, "export")(open_run(run, device="cpu"), Path(file))
    if as_json:
        print_json({"run": run, "file": file, "to": to} | facts)
    else:
        echo(f"{file}: {facts['bytes']:,} bytes.")
