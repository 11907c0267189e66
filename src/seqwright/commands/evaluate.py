"""`seqwright evaluate`."""

from __future__ import annotations

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, options_from, print_json, print_scores


@click.command("evaluate")
@RUN
@click.option(
    "--on", "on", multiple=True, metavar="FILE", help="Text to score; the run's validation text unless given."
)
@click.argument("more", nargs=-1, metavar="[FILE]...")
@SET
@DEVICE
@JSON
def command(
    run: str, on: tuple[str, ...], more: tuple[str, ...], overrides: tuple[str, ...], device: str, as_json: bool
) -> None:
    """Score RUN on whole texts: nll, perplexity, bits per byte and character, with intervals and signatures.

    \b
    seqwright evaluate runs/notes-gpt --on held-out.txt
    seqwright evaluate runs/notes-gpt --set evaluation.stride=1      (each token with the fullest context)
    """
    from seqwright.api import open as open_run
    from seqwright.metrics.likelihood import EvaluationConfig

    if more and not on:
        raise click.UsageError(f"name files with --on, as in --on {' '.join(more)}.")
    files = [*on, *more]
    options = options_from(overrides, "evaluation", EvaluationConfig)
    scores = open_run(run, device=device).evaluate(files or None, **options)
    if as_json:
        print_json({"run": run, "on": files or "validation"} | scores)
        return
    print_scores(scores["scores"])
    for name, reason in scores.get("refused", {}).items():
        click.echo(f"{name.replace('_', ' ')} is refused: {reason}.")
    if "random_windows_nll" in scores:
        click.echo(f"nll over random windows: {scores['random_windows_nll']:.4f} ({scores['random_windows']})")
