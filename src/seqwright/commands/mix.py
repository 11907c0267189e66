"""`seqwright mix`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import DEVICE, JSON, Several, print_json, print_table


@click.command("mix", cls=Several)
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path())
@click.option(
    "--on",
    "on",
    multiple=True,
    metavar="FILE...",
    help="Held-out text, or a source and its target, that sets the weights. Without it translators count alike, and"
    " classifiers take the validation texts they share.",
)
@click.option("--geometric", is_flag=True, help="Translators: log-linear (geometric) mixture, p ∝ Π p_i^weight.")
@click.option("--run", "run", type=click.Path(), required=True, help="The folder of the run to make.")
@DEVICE
@JSON
def command(runs: tuple[str, ...], on: tuple[str, ...], geometric: bool, run: str, device: str, as_json: bool) -> None:
    """Make one run of several: p = Σ weight p_i, with the weights (by EM) under which held-out text is most probable.

    Any language models that share a tokenizer can be mixed, n-grams with neural ones too; any translators between the
    same vocabularies, whatever their kind; and any classifiers of the same classes, each with its own tokenizer, by
    the sum or by p ∝ Π p_i^weight, whichever suits held-out texts better. The new run holds all it needs: the old ones
    may go.

    \b
    seqwright mix runs/ptb-ngram runs/ptb-lstm --on ptb/ptb.valid.txt.xz --run runs/ptb-mixed
    seqwright mix runs/en-de-1 runs/en-de-2 runs/en-de-3 --run runs/en-de
    seqwright mix runs/en-de-1 runs/en-de-gru --on valid.en valid.de --run runs/en-de
    seqwright mix runs/reviews-bag runs/reviews-lstm --on held-out.tsv --run runs/reviews-mixed
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.numbers import figure
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.mix import mix

    summary = mix([open_run(path, device=device) for path in runs], on, Path(run), geometric=geometric)
    if as_json:
        print_json({"run": run, "summary": summary})
        return
    measured = summary.get("tuned", {})
    columns = [Column("run", "run"), *(Column(name, name, figure) for name in ("weight", *measured))]
    print_table(table([*summary["parts"], {"run": run} | measured], columns))
    if summary.get("mean") == "geometric":
        click.echo("p ∝ Π p_i^weight suits these texts better than Σ weight p_i; such weights need not add up to 1.")
    for said in summary.get("warnings", ()):
        click.echo(f"warning: {said}", err=True)
    if measured:
        where = " ".join(on) or "the validation texts"
        where = f"{summary['tuned_tokens']:,} target tokens of {where}" if "tuned_tokens" in summary else where
        click.echo(f"measured on {where}, on which the weights were tuned; evaluate {run} on other text.")
