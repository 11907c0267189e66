"""`seqwright fill`: mask filling with a masked language model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click

from seqwright.commands.common import DEVICE, JSON, RUN, echo, print_json, text_or_line_chunks
from seqwright.commands.tables import input_name, note_empty


@click.command("fill")
@RUN
@click.argument("texts_or_files", nargs=-1)
@click.option("--top-k", type=click.IntRange(min=1), help="Number of predictions per mask.")
@DEVICE
@JSON
def command(run: str, texts_or_files: tuple[str, ...], top_k: int | None, device: str, as_json: bool) -> None:
    """Predict the token behind each <mask> of each text, or line of a file or of standard input, most probable first.

    \b
    seqwright fill runs/notes-bert "the <mask> sat on the <mask>"
    """
    from dataclasses import asdict

    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    options = {} if top_k is None else {"top_k": top_k}
    for masked in itertools.chain.from_iterable(map(_lines, texts_or_files or (None,))):
        filled = opened.fill(masked, **options)
        if as_json:
            print_json({"given": masked} | asdict(filled))
            continue
        echo(filled.text)
        for blank in filled.blanks:
            echo("  " + "   ".join(f"{printable(guess.token)} {guess.probability:.1%}" for guess in blank))


def _lines(text_or_file: str | None) -> Iterator[str]:
    """A text with a mask; or lines of a file or of standard input."""
    if text_or_file is not None and "<mask>" in text_or_file:
        return iter([text_or_file])
    chunks = note_empty(text_or_line_chunks(text_or_file), input_name(text_or_file))
    return itertools.chain.from_iterable(chunks)


def printable(token: str) -> str:
    """A token stripped of spaces; tokens of whitespace alone and unprintable characters are escaped."""
    stripped = token.strip(" ") or repr(token)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in stripped)
