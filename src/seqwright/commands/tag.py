"""`seqwright tag`: sequence labeling of words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    RUN,
    SET,
    echo,
    options_from,
    print_json,
    split_data_overrides,
    text_or_lines,
)

TAGGED_SUFFIXES = (".conllu", ".jsonl")
"""Suffixes of files that are parsed as tagged files even without a tab in them."""


@click.command("tag")
@RUN
@click.argument("file", metavar="[TEXT_OR_FILE]", required=False)
@click.option("--columns", is_flag=True, help="Column format: one token per line, a blank line after each sentence.")
@SET
@DEVICE
@JSON
def command(run: str, file: str | None, columns: bool, overrides: tuple[str, ...], device: str, as_json: bool) -> None:
    """Tag each word of a text, of a file or of standard input, in order.

    A line is a sentence of space-separated words; the output is the line, a tab and its tags. A file with tabs, a
    .conllu or .jsonl file, or any file with --columns, is parsed like training data; input with one token per line
    gives output with one token per line.

    \b
    seqwright tag runs/tags "Time flies like an arrow"
    seqwright tag runs/tags test.tsv > test.out
    seqwright tag runs/tags test.conll --columns --set data.columns=[2,4]      (other column layout)
    """
    from seqwright.api import open as open_run
    from seqwright.data.files import plain_suffix

    data_overrides, others = split_data_overrides(overrides)
    opened = open_run(run, device=device, set=data_overrides)
    # A tagger has no [decoding] keys: any override of them is an error.
    options_from(others, "decoding", type(opened.settings.decoding))
    tag = opened.tag  # raises here, before any input is read, where the run is no tagger
    interactive = file in (None, "-") and sys.stdin.isatty()
    lines, first = peek(text_or_lines(file))
    inputs: Iterator[str | tuple[str, ...]] = lines
    by_token = False
    if columns or "\t" in first or (file is not None and plain_suffix(Path(file)) in TAGGED_SUFFIXES):
        sentences, kind = opened.words("\n".join(lines), file or "standard input", columns=columns)
        inputs, by_token = iter(sentences), kind in ("columns", "conllu")
    elif len(first.split()) == 2 and first.split()[1] in opened.codec.tags:
        echo(f"note: {first!r} is parsed as two words; --columns parses it as a word and its tag.", err=True)
    for sentence in tag(inputs, **({"read_ahead": 1} if interactive else {})):
        if as_json:
            print_json({"tokens": sentence.words, "tags": sentence.tags, "probabilities": sentence.probabilities})
        elif by_token:
            echo("".join(f"{word}\t{label}\n" for word, label in zip(sentence.words, sentence.tags, strict=True)))
        else:
            echo("\t".join([" ".join(sentence.words), " ".join(sentence.tags)]) if sentence.words else "")


def peek(lines: Iterator[str]) -> tuple[Iterator[str], str]:
    """An iterator over the same lines, and the first that is neither blank nor a comment (`# text = …`)."""
    consumed: list[str] = []
    for line in lines:
        consumed.append(line)
        if line.strip() and not line.startswith("# "):
            break
    return chain(consumed, lines), consumed[-1] if consumed else ""
