"""`seqwright classify`: labels and class probabilities of texts or images."""

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
    echo,
    is_file,
    options_from,
    predict_images,
    print_json,
    split_data_overrides,
    text_or_lines,
)


@click.command("classify")
@RUN
@click.argument("text_or_file", required=False)
@click.argument("more", nargs=-1, metavar="[IMAGES]...")
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
    """Classify a text, each line of a file (or of standard input), or each image of files, in order.

    Models of text pairs take two texts per line, separated by a tab. From a .tsv, .csv or .jsonl file only the text
    columns are read; labels in it are ignored.

    \b
    seqwright classify runs/reviews "What a fine film."
    seqwright classify runs/reviews lines.txt --json > predictions.jsonl
    seqwright classify runs/photos one.jpg two.jpg                  (or a folder of them, .npz, IDX)
    """
    from seqwright.api import open as open_run
    from seqwright.data.records import holds_records

    columns, others = split_data_overrides(overrides)
    opened = open_run(run, device=device, set=columns)
    classify = opened.classify  # raises here, before any input is read, where the run is no classifier
    options = options_from(others, "decoding", type(opened.settings.decoding))
    if opened.settings.data.kind == "images":
        _classify_images(opened, [*([text_or_file] if text_or_file else []), *more], options, as_json)
        return
    if more:
        raise click.UsageError("give one text or file at a time; a text with spaces needs quotes around it.")
    pairs = opened.labels.parts > 1
    lines: Any = (tuple(line.split("\t")) if pairs else line for line in text_or_lines(text_or_file))
    if text_or_file is not None and is_file(text_or_file) and holds_records(Path(text_or_file)):
        lines = opened.texts(Path(text_or_file))
    interactive = text_or_file in (None, "-") and sys.stdin.isatty()
    for prediction in classify(lines, **({"read_ahead": 1} if interactive else {}), **options):
        if as_json:
            print_json(
                {
                    "text": list(prediction.texts) if pairs else prediction.texts[0],
                    "label": prediction.label,
                    "probabilities": prediction.probabilities,
                    "unread": prediction.unread,
                }
            )
        else:
            echo(str(prediction))


def _classify_images(opened: Any, files: Sequence[str], options: dict[str, Any], as_json: bool) -> None:
    """Prints the class of each image of files or folders."""
    if not files:
        raise click.UsageError("name image files, or a folder of them.")
    for location, prediction in predict_images(files, lambda names: opened.classify(names, **options)):
        if as_json:
            print_json(location | asdict(prediction))
        else:
            echo(str(prediction) if [*files] == [location["file"]] else f"{location['file']}: {prediction}")
