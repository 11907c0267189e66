"""`seqwright ladder`: models of growing size on the user's own data under one time budget, compared."""

from __future__ import annotations

from typing import Any

import click

from seqwright.commands.checks import existing_files, existing_run
from seqwright.commands.common import (
    COLUMNS,
    JSON,
    SET,
    SKIP_LABELED,
    MultiValueCommand,
    echo,
    print_json,
    print_parts,
    resumable,
)


@click.command("ladder", cls=MultiValueCommand)
@click.argument("more", nargs=-1, metavar="")
@click.option("--text", multiple=True, metavar="FILE", callback=existing_files, help="Plain text: language models.")
@click.option(
    "--labeled", multiple=True, metavar="FILE", callback=existing_files, help="Labeled texts: classifiers, a table."
)
@click.option("--tagged", multiple=True, metavar="FILE", callback=existing_files, help="Tagged words: taggers.")
@click.option(
    "--pairs", multiple=True, metavar="SOURCE TARGET", callback=existing_files, help="Parallel corpus: translators."
)
@click.option(
    "--valid",
    multiple=True,
    metavar="FILE",
    callback=existing_files,
    help="Validation data. Default: a held-out split.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="N",
    help="Time budget that the networks share equally; counted models take seconds more.",
)
@click.option("--model", "kinds", multiple=True, metavar="KIND", help="Only these rungs; may be repeated.")
@click.option(
    "--from", "base", type=click.Path(), metavar="RUN", callback=existing_run, help="One more rung: fine-tune this run."
)
@click.option("--run", "folder", type=click.Path(), help="Folder of the runs. Default: runs/ladder-NAME.")
@click.option("--quiet", "-q", is_flag=True, help="Hide progress.")
@COLUMNS
@SKIP_LABELED
@SET
@JSON
def command(
    more: tuple[str, ...],
    text: tuple[str, ...],
    labeled: tuple[str, ...],
    tagged: tuple[str, ...],
    pairs: tuple[str, ...],
    valid: tuple[str, ...],
    minutes: float,
    kinds: tuple[str, ...],
    base: str | None,
    folder: str | None,
    quiet: bool,
    columns: tuple[str, ...],
    skip_bad_rows: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train models from simple to large on your data under one time budget, and say which of them is enough.

    \b
    seqwright ladder --text notes.txt --minutes 10
    seqwright ladder --labeled tickets.csv --minutes 5
    seqwright ladder --pairs train.en train.de --model lstm --model transformer

    Run it again to resume. Every rung is an ordinary run, compared on the same held-out data.
    """
    if more:
        raise click.UsageError(f"name every file with the kind of its data, as in --text {more[0]} (or --labeled …).")
    from seqwright.api import ladder
    from seqwright.reporting.progress import TerminalProgress

    data = {"text": text, "labeled": labeled, "tagged": tagged, "pairs": pairs}
    given: dict[str, Any] = {kind: names or None for kind, names in data.items()}
    with resumable(), TerminalProgress(quiet=quiet or as_json) as progress:
        trained = ladder(
            folder,
            valid=valid,
            minutes=minutes,
            models=kinds,
            base=base,
            columns=columns,
            set=[*overrides, *["data.bad_rows=skip"] * skip_bad_rows],
            progress=progress,
            **given,
        )
    if as_json:
        print_json(trained.as_json())
        return
    print_parts(trained.printed())
    echo(f"Is a difference significant? `seqwright compare {trained.page.parent}/*`")
    echo(f"report: {trained.page}")
