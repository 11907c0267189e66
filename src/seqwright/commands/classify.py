"""`seqwright classify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    RUN,
    SET,
    each_picture,
    is_file,
    options_from,
    print_json,
    reading,
    text_or_lines,
)


@click.command("classify")
@RUN
@click.argument("text_or_file", required=False)
@click.argument("more", nargs=-1, metavar="[PICTURES]...")
@SET
@DEVICE
@JSON
def command(
    run: str,
    text_or_file: str | None,
    more: tuple[str, ...],
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """The label of a text, of each line of a file (or of standard input), or of each picture of files, in order.

    Where the run reads two texts at a time, they stand on one line, separated by a tab. Of a .tsv, .csv or .jsonl file
    the texts are read, not the labels it may have.

    \b
    seqwright classify runs/reviews "What a fine film."
    seqwright classify runs/reviews lines.txt --json > answers.jsonl
    seqwright classify runs/photos one.jpg two.jpg                  (or a folder of them, .npz, IDX)
    """
    from seqwright.api import open as open_run
    from seqwright.data.records import holds_records

    columns, others = reading(overrides)
    opened = open_run(run, device=device, set=columns)
    classify = opened.classify  # a run that does not classify says so before anything is read
    options = options_from(others, "decoding", type(opened.settings.decoding))
    if opened.settings.data.kind == "images":
        _look(opened, [*([text_or_file] if text_or_file else []), *more], options, as_json)
        return
    if more:
        raise click.UsageError("give one text or file at a time; a text with spaces needs quotes around it.")
    pairs = opened.labels.parts > 1
    lines: Any = (tuple(line.split("\t")) if pairs else line for line in text_or_lines(text_or_file))
    if text_or_file is not None and is_file(text_or_file) and holds_records(Path(text_or_file)):
        lines = opened.texts(Path(text_or_file))
    typed = text_or_file in (None, "-") and sys.stdin.isatty()
    for said in classify(lines, **({"at_once": 1} if typed else {}), **options):
        if as_json:
            print_json(
                {
                    "text": list(said.texts) if pairs else said.texts[0],
                    "label": said.label,
                    "probabilities": said.probabilities,
                    "unread": said.unread,
                }
            )
        else:
            click.echo(said.said)


def _look(opened: Any, files: Sequence[str], options: dict[str, Any], as_json: bool) -> None:
    """What is on the pictures of some files or folders."""
    if not files:
        raise click.UsageError("name files of pictures, or a folder of image files.")
    for where, seen in each_picture(files, lambda names: opened.classify(names, **options)):
        if as_json:
            print_json(where | asdict(seen))
        else:
            click.echo(seen.said if [*files] == [where["file"]] else f"{where['file']}: {seen.said}")
