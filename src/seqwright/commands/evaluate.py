"""`seqwright evaluate`."""

from __future__ import annotations

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    RUN,
    SET,
    Several,
    options_from,
    print_json,
    print_scores,
    print_table,
)


@click.command("evaluate", cls=Several)
@RUN
@click.option(
    "--on",
    "on",
    multiple=True,
    metavar="FILE...",
    help="Text to score, or a source and its references; the run's validation data unless given.",
)
@click.argument("more", nargs=-1, metavar="")
@SET
@DEVICE
@JSON
def command(
    run: str, on: tuple[str, ...], more: tuple[str, ...], overrides: tuple[str, ...], device: str, as_json: bool
) -> None:
    """Score RUN with intervals and signatures: likelihood of whole texts, or of targets, and translations' quality.

    \b
    seqwright evaluate runs/notes-gpt --on held-out.txt
    seqwright evaluate runs/en-de --on test.en test.de
    seqwright evaluate runs/notes-gpt --set evaluation.stride=1      (each token with the fullest context)
    """
    if more:
        raise click.UsageError(f"name files with --on, as in --on {' '.join(more)}.")
    from seqwright.api import open as open_run
    from seqwright.reporting.progress import scoring
    from seqwright.reporting.terminal import named_table

    opened, files = open_run(run, device=device), list(on)
    options = options_from(overrides, "evaluation", type(opened.settings.evaluation))
    with scoring(quiet=as_json) as watch:
        scores = opened.evaluate(files or None, watch=watch, **options)
    if as_json:
        print_json({"run": run, "on": files or "validation"} | scores)
        return
    print_scores(scores["scores"])
    for key in ("per_class", "per_span"):
        if key in scores.get("details", {}):
            print_table(named_table(scores["details"][key]))
    if scores.get("unlearnt_tags"):
        click.echo(f"tags that were not learnt, counted as wrong: {', '.join(sorted(scores['unlearnt_tags']))}.")
    for name, reason in scores.get("refused", {}).items():
        click.echo(f"{name.replace('_', ' ')} is refused: {reason}.")
    if scores.get("impossible"):
        click.echo(
            f"{scores['impossible']:,} of {scores['tokens']:,} tokens have probability zero under this model, so the"
            " text has, too; with model.unknown = true unknown tokens have some."
        )
    if "random_windows_nll" in scores:
        click.echo(f"nll over random windows: {scores['random_windows_nll']:.4f} ({scores['random_windows']})")
