"""`seqwright translate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from seqwright.commands.common import DEVICE, JSON, PRECISION, RUN, SET, options_from, print_json, text_or_waiting


@click.command("translate")
@RUN
@click.argument("file", metavar="[TEXT_OR_FILE]", required=False)
@click.option("--tag", metavar="<NAME>", help="The reserved token that says what is wanted, as in --tag '<de>'.")
@click.option("--truncate", is_flag=True, help="Cut off sources that are too long for the model, and say so.")
@click.option("--attention", is_flag=True, help="Say where each output looked: `text ||| source-target …`, in tokens.")
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str,
    file: str | None,
    tag: str | None,
    truncate: bool,
    attention: bool,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """The target of a text, or of each line of a file or standard input, in order: one line in, one line out.

    A run that reads several sources for each target takes them separated by tabs. What comes slowly is translated as
    it comes; with --json --attention all weights are given.

    \b
    seqwright translate runs/en-de test.en > test.out
    seqwright translate runs/en-de "Two dogs run." --set decoding.n_best=5 --json
    seqwright translate runs/en-de test.en --set 'decoding.required=["Hunde"]' --set 'decoding.forbidden=["laufen"]'
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device, precision=precision)
    go_on = opened.translate  # a run that cannot translate says so before anything is read
    options = options_from(overrides, "decoding", type(opened.settings.decoding))
    options |= {"tag": tag, "truncate": truncate, "attention": attention}
    several = getattr(opened.settings.data, "sources", 1) > 1

    def translations() -> Iterator[Any]:
        first = 1
        for lines in text_or_waiting(file):
            if first == 1 and (why := opened.sides.swapped(lines)):
                click.echo(f"the sources look like targets: {why}.", err=True)
            yield from go_on([line.split("\t") if several else line for line in lines], first=first, **options)
            first += len(lines)

    shortened = 0
    for number, said in enumerate(translations(), 1):
        shortened += said.unread > 0
        if as_json:
            print_json(_fields(said, several))
            continue
        text = said.text.replace("\n", " ")
        click.echo(f"{text} ||| {said.attention.links if said.attention else ''}".rstrip() if attention else text)
        for flag in said.warnings:
            click.echo(f"line {number:,} looks degenerate: {flag}.", err=True)
    if shortened:
        click.echo(f"{shortened:,} source(s) did not fit the model and were cut off.", err=True)


def _fields(said: Any, several: bool) -> dict[str, Any]:
    return {
        "source": list(said.source) if several else said.source[0],
        "text": said.text,
        "log_prob": said.log_prob,
        "reason": said.reason,
        "others": list(said.others),
        "unread": said.unread,
        "warnings": [flag.as_json() for flag in said.warnings],
        **({} if said.attention is None else {"attention": asdict(said.attention)}),
    }
