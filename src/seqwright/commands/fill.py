"""`seqwright fill`."""

from __future__ import annotations

import click

from seqwright.commands.common import DEVICE, JSON, RUN, print_json, read_lines


@click.command("fill")
@RUN
@click.argument("text", nargs=-1)
@click.option("--top-k", type=click.IntRange(min=1), help="Predictions for each mask.")
@DEVICE
@JSON
def command(run: str, text: tuple[str, ...], top_k: int | None, device: str, as_json: bool) -> None:
    """What <mask> may hide in each TEXT (or line of standard input), the most probable first.

    \b
    seqwright fill runs/notes-bert "the <mask> sat on the <mask>"
    """
    from dataclasses import asdict

    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    options = {} if top_k is None else {"top_k": top_k}
    for one in text or read_lines(None):
        filled = opened.fill(one, **options)
        if as_json:
            print_json({"given": one} | asdict(filled))
            continue
        click.echo(filled.text)
        for blank in filled.blanks:
            click.echo("  " + "   ".join(f"{shown(guess.token)} {guess.probability:.1%}" for guess in blank))


def shown(token: str) -> str:
    """A token without the spaces at its ends; white space alone, and what cannot be printed, escaped."""
    word = token.strip(" ") or repr(token)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in word)
