"""`seqwright translate`: sequence-to-sequence decoding of source lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from seqwright.commands.common import (
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    echo,
    options_from,
    print_json,
    text_or_line_chunks,
)


@click.command("translate")
@RUN
@click.argument("file", metavar="[TEXT_OR_FILE]", required=False)
@click.option(
    "--tag", metavar="<NAME>", help="Special token prepended to the source, such as a target language: --tag '<de>'."
)
@click.option("--truncate", is_flag=True, help="Truncate sources that exceed the context of the model, with a warning.")
@click.option(
    "--attention", is_flag=True, help="Append the attention alignment: `text ||| source-target …`, in token positions."
)
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
    """Translate a text, or each line of a file or standard input, in order: one line in, one line out.

    Multi-source models take the sources of a line separated by tabs. Standard input is translated as it arrives. With
    --json --attention all attention weights are printed.

    \b
    seqwright translate runs/en-de test.en > test.out
    seqwright translate runs/en-de "Two dogs run." --set decoding.n_best=5 --json
    seqwright translate runs/en-de test.en --set 'decoding.required=["Hunde"]' --set 'decoding.forbidden=["laufen"]'
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device, precision=precision)
    translate = opened.translate  # raises here, before any input is read, where the run is no translator
    options = options_from(overrides, "decoding", type(opened.settings.decoding))
    options |= {"tag": tag, "truncate": truncate, "attention": attention}
    multi_source = getattr(opened.settings.data, "sources", 1) > 1

    def translations() -> Iterator[Any]:
        first_line = 1
        for lines in text_or_line_chunks(file):
            if first_line == 1 and (reason := opened.codec.sides.swapped(lines)):
                echo(f"the sources look like targets: {reason}.", err=True)
            yield from translate(
                [line.split("\t") if multi_source else line for line in lines], first=first_line, **options
            )
            first_line += len(lines)

    truncated = 0
    for number, translation in enumerate(translations(), 1):
        truncated += translation.unread > 0
        if as_json:
            print_json(_fields(translation, multi_source))
            continue
        text = translation.text.replace("\n", " ")
        links = translation.attention.links if translation.attention else ""
        echo(f"{text} ||| {links}".rstrip() if attention else text)
        for flag in translation.warnings:
            echo(f"line {number:,} looks degenerate: {flag}.", err=True)
    if truncated:
        echo(f"{truncated:,} source(s) exceed the context of the model and were truncated.", err=True)


def _fields(translation: Any, multi_source: bool) -> dict[str, Any]:
    return {
        "source": list(translation.source) if multi_source else translation.source[0],
        "text": translation.text,
        "log_prob": translation.log_prob,
        "reason": translation.reason,
        "others": list(translation.others),
        "unread": translation.unread,
        "warnings": [flag.as_json() for flag in translation.warnings],
        **({} if translation.attention is None else {"attention": asdict(translation.attention)}),
    }
