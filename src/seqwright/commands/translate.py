"""`seqwright translate`."""

from __future__ import annotations

import sys

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, options_from, print_json, read_lines


@click.command("translate")
@RUN
@click.argument("file", required=False)
@click.option("--tag", metavar="<NAME>", help="The reserved token that says what is wanted, as in --tag '<de>'.")
@click.option("--truncate", is_flag=True, help="Cut off sources that are too long for the model, and say so.")
@SET
@DEVICE
@JSON
def command(
    run: str,
    file: str | None,
    tag: str | None,
    truncate: bool,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """The target of each line of FILE or standard input, in order: one line in, one line out.

    A run that reads several sources for each target takes them separated by tabs.

    \b
    seqwright translate runs/en-de test.en > test.out
    echo "Two dogs run." | seqwright translate runs/en-de
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    options = options_from(overrides, "decoding", type(opened.settings.decoding))
    typed = file in (None, "-") and sys.stdin.isatty()
    several = getattr(opened.settings.data, "sources", 1) > 1
    lines = (tuple(line.split("\t")) if several else line for line in read_lines(file))
    more = {"at_once": 1} if typed else {}
    shortened = 0
    for number, said in enumerate(opened.translate(lines, tag=tag, truncate=truncate, **more, **options), 1):
        shortened += said.unread > 0
        if as_json:
            print_json(
                {
                    "source": list(said.source) if several else said.source[0],
                    "text": said.text,
                    "log_prob": said.log_prob,
                    "reason": said.reason,
                    "others": list(said.others),
                    "unread": said.unread,
                    "warnings": [flag.as_json() for flag in said.warnings],
                }
            )
        else:
            click.echo(said.text.replace("\n", " "))
            for flag in said.warnings:
                click.echo(f"line {number:,} looks degenerate: {flag.text}.", err=True)
    if shortened:
        click.echo(f"{shortened:,} source(s) did not fit the model and were cut off.", err=True)
