"""`seqwright tag`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, options_from, print_json, reading, text_or_lines

WRITTEN = (".conllu", ".jsonl")
"""Suffixes of files whose lines are no plain sentences, tabs or not."""


@click.command("tag")
@RUN
@click.argument("file", metavar="[TEXT_OR_FILE]", required=False)
@click.option("--columns", is_flag=True, help="The file has a token a line and a blank line between sentences.")
@SET
@DEVICE
@JSON
def command(run: str, file: str | None, columns: bool, overrides: tuple[str, ...], device: str, as_json: bool) -> None:
    """The tag of each word of a text, of a file or of standard input, in order.

    A line is a sentence, its words parted by spaces; it comes back with its tags behind a tab. A file with tabs, a
    .conllu or .jsonl, or any with --columns, is read as one to learn from is; where that has a token a line, so has
    what comes back.

    \b
    seqwright tag runs/tags "Time flies like an arrow"
    seqwright tag runs/tags test.tsv > test.out
    seqwright tag runs/tags test.conll --columns --set data.columns=[2,4]      (a file with other columns)
    """
    from seqwright.api import open as open_run
    from seqwright.data.files import plain_suffix

    own, others = reading(overrides)
    opened = open_run(run, device=device, set=own)
    options_from(others, "decoding", type(opened.settings.decoding))  # a tagger has none: whatever is set is refused
    answer = opened.tag  # refused at once where a run does other things
    typed = file in (None, "-") and sys.stdin.isatty()
    lines, first = peeked(text_or_lines(file))
    given: Iterator[str | tuple[str, ...]] = lines
    by_token = False
    if columns or "\t" in first or (file is not None and plain_suffix(Path(file)) in WRITTEN):
        sentences, kind = opened.words("\n".join(lines), file or "standard input", columns=columns)
        given, by_token = iter(sentences), kind in ("columns", "conllu")
    elif len(first.split()) == 2 and first.split()[1] in opened.labels["tags"]:
        click.echo(f"note: {first!r} is read as two words; --columns reads it as a word and its tag.", err=True)
    for said in answer(given, **({"at_once": 1} if typed else {})):
        if as_json:
            print_json({"tokens": said.words, "tags": said.tags, "probabilities": said.probabilities})
        elif by_token:
            click.echo("".join(f"{word}\t{tag}\n" for word, tag in zip(said.words, said.tags, strict=True)))
        else:
            click.echo("\t".join([" ".join(said.words), " ".join(said.tags)]) if said.words else "")


def peeked(lines: Iterator[str]) -> tuple[Iterator[str], str]:
    """The same lines, and the first that is neither blank nor a comment (`# text = …`)."""
    seen: list[str] = []
    for line in lines:
        seen.append(line)
        if line.strip() and not line.startswith("# "):
            break
    return chain(seen, lines), seen[-1] if seen else ""
