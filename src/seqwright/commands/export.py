"""`seqwright export`: a model in another program's format."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, RUN, echo, print_json


@click.command("export")
@RUN
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--to",
    "to",
    metavar="FORMAT",
    help="arpa: n-gram models, for KenLM, SRILM and other toolkits. Default: the extension of FILE.",
)
@JSON
def command(run: str, file: str, to: str | None, as_json: bool) -> None:
    """Export the model of RUN to FILE in another program's format.

    Networks need no export: `model.safetensors` and `tokenizer.json` in the folder of a run open in PyTorch and
    tokenizers as they are.

    \b
    seqwright export runs/ptb-ngram ptb.arpa.gz
    """
    from seqwright.api import open as open_run
    from seqwright.interop.formats import export

    facts = export(open_run(run, device="cpu"), Path(file), to)
    if as_json:
        print_json({"run": run, "file": file} | facts)
    else:
        echo(f"{file}: {facts['bytes']:,} bytes. `{facts['import']}` imports it again.")
