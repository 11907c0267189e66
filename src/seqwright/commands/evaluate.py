"""`seqwright evaluate`."""

from __future__ import annotations

from typing import Any

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    Several,
    options_from,
    print_json,
    print_scores,
    print_table,
    reading,
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
@click.option("--label-errors", type=click.IntRange(1), help="List the N most likely label errors.")
@click.argument("more", nargs=-1, metavar="")
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str,
    on: tuple[str, ...],
    label_errors: int | None,
    more: tuple[str, ...],
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Score RUN with intervals and signatures: likelihood of whole texts, or of targets, and the quality of answers.

    \b
    seqwright evaluate runs/notes-gpt --on held-out.txt
    seqwright evaluate runs/en-de --on test.en test.de
    seqwright evaluate runs/reviews --on train.tsv --label-errors 20   (labels that may be wrong)
    seqwright evaluate runs/tags --on test.tsv --set data.columns=[1,3]   (a file with other columns)
    seqwright evaluate runs/notes-gpt --set evaluation.stride=1      (each token with the fullest context)
    """
    if more:
        raise click.UsageError(f"name files with --on, as in --on {' '.join(more)}.")
    from seqwright.api import open as open_run
    from seqwright.reporting.progress import scoring
    from seqwright.reporting.terminal import named_table

    columns, others = reading(overrides)
    opened, files = open_run(run, device=device, precision=precision, set=columns), list(on)
    options = options_from(others, "evaluation", type(opened.settings.evaluation))
    if label_errors is not None:
        _doubt(opened, files, label_errors, as_json)
        return
    with scoring(quiet=as_json) as watch:
        scores = opened.evaluate(files or None, watch=watch, **options)
    if as_json:
        print_json({"run": run, "on": files or "validation"} | scores)
        return
    print_scores(scores["scores"])
    _print_classes(scores.get("details", {}))
    if "per_span" in scores.get("details", {}):
        print_table(named_table(scores["details"]["per_span"]))
    for what in ("tags", "labels"):
        if strange := scores.get(f"unlearned_{what}"):
            told = ", ".join(f"{name} ({count:,})" for name, count in sorted(strange.items()))
            fate = opened.labels.unknown_treatment if what == "labels" else "counted as wrong"
            click.echo(f"{what} that were not learned, {fate}: {told}.")
    if scores.get("cut"):
        click.echo(
            f"{scores['cut']:,} of {scores['texts']:,} texts ({scores['cut'] / scores['texts']:.1%}) did not fit and"
            f' were cut; data.truncation = "{opened.settings.data.truncation}".'
        )
    if scores.get("lower_case"):
        click.echo(
            "outputs are lower-case (tokenizer.lowercase), references keep their case; lower-case them to compare."
        )
    for name, reason in scores.get("refused", {}).items():
        click.echo(f"{name.replace('_', ' ')} is refused: {reason}.")
    if scores.get("impossible"):
        click.echo(
            f"{scores['impossible']:,} of {scores['tokens']:,} tokens have probability zero under this model, so the"
            " text has, too; with model.unknown = true unknown tokens have some."
        )
    if "random_windows_nll" in scores:
        click.echo(f"nll over random windows: {scores['random_windows_nll']:.4f} ({scores['random_windows']})")


def _doubt(opened: Any, files: list[str], many: int, as_json: bool) -> None:
    """The texts whose label the model finds least probable."""
    from seqwright.core.config import UserError
    from seqwright.reporting.classification import label_errors_table

    if opened.settings.data.kind != "labeled":
        raise UserError(f"{opened.path} {opened.does}; only classifiers of texts list labels they doubt.")
    found = opened.label_errors(files or None, many)
    if as_json:
        print_json({"run": str(opened.path), "on": files or "validation", "label_errors": found})
    else:
        print_table(label_errors_table(found))


def _print_classes(details: dict[str, Any]) -> None:
    if details:
        from seqwright.reporting.classification import class_tables, label_errors_table

        for drawn in class_tables(details):
            print_table(drawn)
        if details.get("mistakes"):
            click.echo("most confidently wrong:")
            print_table(label_errors_table(details["mistakes"]))
