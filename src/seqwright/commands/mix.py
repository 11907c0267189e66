"""`seqwright mix`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import DEVICE, JSON, print_json, print_table


@click.command("mix")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path())
@click.option(
    "--on",
    "on",
    multiple=True,
    metavar="FILE",
    help="Held-out text that sets the weights; of classifiers, the validation texts they share unless given.",
)
@click.option("--run", "run", type=click.Path(), required=True, help="The folder of the run to make.")
@DEVICE
@JSON
def command(runs: tuple[str, ...], on: tuple[str, ...], run: str, device: str, as_json: bool) -> None:
    """Make one run of several: p = Σ weight p_i, with the weights (by EM) under which held-out text is most probable.

    Any language models that share a tokenizer can be mixed, n-grams with neural ones too, and any classifiers of the
    same classes, each with its own tokenizer. The new run holds all it needs: the old ones may go.

    \b
    seqwright mix runs/reviews-bag runs/reviews-lstm --on held-out.tsv --run runs/reviews-mixed
    seqwright mix runs/ptb-ngram runs/ptb-lstm --on ptb/ptb.valid.txt.xz --run runs/ptb-mixed
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.numbers import figure
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.mix import mix

    summary = mix([open_run(path, device=device) for path in runs], on, Path(run))
    if as_json:
        print_json({"run": run, "summary": summary})
        return
    measured = summary.get("tuned") or {"perplexity": summary["tuned_perplexity"]}
    names = ["weight", *measured]
    columns = [Column("run", "run"), *(Column(name, name, figure) for name in names)]
    print_table(table([*summary["parts"], {"run": run} | measured], columns))
    where = " ".join(on) or "the validation texts"
    click.echo(f"measured on {where}, on which the weights were tuned; evaluate {run} on other text.")
