"""`seqwright compare`: scores of several runs on the same data, with significance tests."""

from __future__ import annotations

import click

from seqwright.commands.checks import existing_runs, page_file
from seqwright.commands.common import (
    COLUMNS,
    DEVICE,
    JSON,
    SET,
    TRUST,
    MultiValueCommand,
    echo,
    on_files,
    print_json,
    print_parts,
)


@click.command("compare", cls=MultiValueCommand)
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=click.Path(), callback=existing_runs)
@on_files("Test data: a text, or a source and its references. Default: the validation data, if all runs share it.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Metric to test; may be repeated.")
@click.option("--html", type=click.Path(dir_okay=False), callback=page_file, help="Also write a page.")
@COLUMNS
@SET
@TRUST
@DEVICE
@JSON
def command(
    runs: tuple[str, ...],
    on: tuple[str, ...],
    metrics: tuple[str, ...],
    html: str | None,
    columns: tuple[str, ...],
    overrides: tuple[str, ...],
    trust: bool,
    device: str,
    as_json: bool,
) -> None:
    """Compare runs of one task on the same data: scores, paired significance tests, examples and recipes.

    Runs whose recipes differ in the seed alone are one row, with mean and standard deviation. A run is called better
    only with evidence: an approximate randomization test, corrected for all pairs, and a paired bootstrap interval.

    \b
    seqwright compare runs/ngram runs/gpt --on test.txt
    seqwright compare runs/cnn-1 runs/cnn-2 runs/lstm-1 runs/lstm-2 --on test.tsv --html comparison.html
    seqwright compare runs/en-de runs/en-de-big --on test.en test.de --metric chrf
    seqwright compare runs/ladder-notes/*          (all runs of a ladder or sweep)
    seqwright compare runs/cnn runs/lstm --on other.csv --columns text=review,label=stars
    """
    from seqwright.api import compare
    from seqwright.reporting.progress import TerminalProgress

    with TerminalProgress(quiet=as_json) as progress:
        comparison = compare(
            runs, on=on, metrics=metrics, columns=columns, set=overrides, device=device, trust=trust, progress=progress
        )
    for note in comparison.notes:
        echo(f"warning: {note}", err=True)
    if html:
        echo(f"page: {comparison.write_html(html)}", err=True)
    if as_json:
        print_json(comparison.as_json())
        return
    print_parts(comparison.printed())
