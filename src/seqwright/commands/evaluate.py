"""`seqwright evaluate`: scores with confidence intervals and signatures."""

from __future__ import annotations

import warnings
from typing import Any

import click

from seqwright.commands.common import (
    COLUMNS,
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    SKIP_LABELED,
    TRUST,
    echo,
    on_files,
    options_from,
    print_json,
    print_parts,
    print_table,
    split_data_overrides,
)
from seqwright.commands.ranked import PROCESSES, RankedCommand, command_ranks


@click.command("evaluate", cls=RankedCommand)
@RUN
@on_files("Test data: a text, or a source and its references. Default: the validation data of RUN.")
@click.option(
    "--label-errors",
    type=click.IntRange(1),
    help="List the N most likely label errors of FILE. Default: of the training data of a bag of n-grams, by"
    " cross-validation, or of the validation data of a network.",
)
@click.argument("more", nargs=-1, metavar="")
@COLUMNS
@SKIP_LABELED
@SET
@TRUST
@DEVICE
@PRECISION
@PROCESSES
@JSON
def command(
    run: str,
    on: tuple[str, ...],
    label_errors: int | None,
    more: tuple[str, ...],
    columns: tuple[str, ...],
    skip_bad_rows: bool,
    overrides: tuple[str, ...],
    trust: bool,
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Evaluate RUN: likelihood of texts or targets and the metrics of its task, with intervals and signatures.

    \b
    seqwright evaluate runs/notes-gpt --on held-out.txt
    seqwright evaluate runs/en-de --on test.en test.de
    seqwright evaluate runs/reviews --label-errors 20                 (likely label errors, by cross-validation)
    seqwright evaluate runs/tags --on test.tsv --columns token=1,tag=3   (other column layout)
    seqwright evaluate runs/notes-gpt --set evaluation.stride=1      (maximum context per token)
    """
    if more:
        raise click.UsageError(f"name files with --on, as in --on {' '.join(more)}.")
    from seqwright.api import open as open_run
    from seqwright.core.ranks import SINGLE, evaluation_by
    from seqwright.pipeline.facts import record_scores
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.runs.overlap import TrainingDataWarning, trained_on

    data_overrides, others = split_data_overrides(overrides)
    data_overrides += ["data.bad_rows=skip"] * skip_bad_rows
    parsing: dict[str, Any] = {"columns": columns, "set": data_overrides}
    opened, files = open_run(run, device=device, precision=precision, trust=trust, **parsing), list(on)
    options = options_from(others, "evaluation", type(opened.settings.evaluation))
    ranks = command_ranks() or SINGLE
    if label_errors is not None:
        with evaluation_by(ranks):
            _print_label_errors(opened, files, label_errors, as_json)
        return
    with TerminalProgress(quiet=as_json) as progress, evaluation_by(ranks):
        scores = opened.evaluate(files or None, progress=progress, **options)
    seen = trained_on(opened, files)
    if files and ranks.first and not record_scores(opened.directory, files, scores.as_json(), trained_on=bool(seen)):
        echo(f"{run} cannot be written: its report does not have these scores.", err=True)
    exact = None
    if precision != "fp32":
        with TerminalProgress(quiet=as_json) as progress, evaluation_by(ranks), warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingDataWarning)  # issued above
            plain = open_run(run, device=device, trust=trust, **parsing)
            exact = plain.evaluate(files or None, progress=progress, **options)
    fingerprint = opened.fingerprint
    if as_json:
        in_fp32 = {} if exact is None else {"fp32": exact.as_json()["scores"]}
        print_json({"run": run, "fingerprint": fingerprint, "on": files or "validation"} | scores.as_json() | in_fp32)
        return
    print_parts(scores.printed(fingerprint))
    if exact is not None:
        echo(f"{precision} instead of fp32: {_changes(exact['scores'], scores['scores'])}.")


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Each score in fp32 and in another precision."""
    pairs = [(name, before[name]["value"], after[name]["value"]) for name in before if before[name] and after.get(name)]
    return ", ".join(f"{name} {old:.4g} → {new:.4g} ({new / old - 1:+.2%})" for name, old, new in pairs if old)


def _print_label_errors(opened: Any, files: list[str], n: int, as_json: bool) -> None:
    """Prints the n texts whose labels are least probable under the model."""
    from seqwright.core.config import UserError
    from seqwright.core.printable import quantity
    from seqwright.core.protocols import Counted
    from seqwright.reporting.classification import label_errors_table
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.runs.overlap import trained_on

    if not hasattr(type(opened), "label_errors"):
        raise UserError(f"{opened.path} {opened.description}; only text classifiers list label errors.")
    for file in trained_on(opened, files):
        learned = f"{opened.path} was trained on {file} and has learned its labels, wrong ones, too"
        counted = isinstance(opened.model, Counted)
        instead = "without --on, each text is judged by a model that was not" if counted else "a run that was not"
        echo(f"warning: {learned}; {instead}{', which' if counted else ''} finds more.", err=True)
    with TerminalProgress(quiet=as_json) as progress:
        doubted = opened.label_errors(files or None, None, progress=progress)
    if as_json:
        errors = {"doubted": len(doubted), "probabilities": doubted.probabilities, "label_errors": doubted[:n]}
        own = "training" if isinstance(opened.model, Counted) else "validation"
        print_json({"run": str(opened.path), "on": files or own} | errors)
        return
    echo(doubted.probabilities)
    if not doubted:
        echo("no label is doubted: all judged texts are classified as they are labeled.")
    else:
        shown = f"the {n:,} least probable labels first" if len(doubted) > n else "the least probable label first"
        echo(f"{quantity(len(doubted), 'text')} classified otherwise, {shown}:")
        print_table(label_errors_table(doubted[:n]))
