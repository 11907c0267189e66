"""`seqwright where`: texts or samples of a model, searched in the text that it was trained on."""

from __future__ import annotations

import click

from seqwright.commands.checks import existing_files, page_file
from seqwright.commands.common import (
    DEVICE,
    JSON,
    RUN,
    SET,
    TRUST,
    MultiValueCommand,
    echo,
    note_file_names,
    options_from,
    print_json,
)


@click.command("where", cls=MultiValueCommand)
@RUN
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("--on", multiple=True, callback=existing_files, metavar="FILE", help="Search the documents of files.")
@click.option("--samples", type=click.IntRange(1, 10_000), metavar="N", help="Search N samples of the model.")
@click.option(
    "--min-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="List matches of at least N tokens; default 8, or 32 where tokens are characters or bytes.",
)
@click.option("--max-tokens", type=int, help="Maximum number of new tokens of a sample.")
@click.option("--temperature", type=float, help="Softmax temperature of samples; 0 decodes greedily.")
@click.option("--seed", type=int, help="Seed of the first sample; the others have consecutive seeds.")
@SET
@click.option("--html", type=click.Path(dir_okay=False), callback=page_file, help="Write a page instead of printing.")
@TRUST
@DEVICE
@JSON
def command(
    run: str,
    texts: tuple[str, ...],
    on: tuple[str, ...],
    samples: int | None,
    min_tokens: int | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    overrides: tuple[str, ...],
    html: str | None,
    trust: bool,
    device: str,
    as_json: bool,
) -> None:
    """Find TEXTs, documents of files, or samples of RUN in the text that RUN was trained on: the longest matches with
    file and line, and how much is copied. Without any of them, 20 samples are drawn.

    Samples and files are compared with as much held-out text of the run: the share that two such texts have in common
    anyway. The index of the training text is built at the first use and kept in the folder of the run.

    \b
    seqwright where runs/notes-gpt --samples 100
    seqwright where runs/notes-gpt "to be or not to be" --min-tokens 4
    seqwright where runs/notes-gpt --on essay.txt --html essay.html
    """
    from seqwright.core.config import UserError

    if html and as_json:
        raise UserError("--html writes a page; leave --json out.")
    from seqwright.api import open as open_run
    from seqwright.api import where
    from seqwright.decoding.options import SamplingOptions
    from seqwright.reporting.progress import TerminalProgress

    flags = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    decoding = options_from(overrides, "decoding", SamplingOptions, flags)
    if decoding and (texts or on):
        raise UserError(f"{', '.join(decoding)}: options of samples; leave them out, or the text.")
    note_file_names(texts, "--on")
    opened = open_run(run, device=device, trust=trust)
    with TerminalProgress() as progress:
        result = where(
            opened,
            list(texts) or None,
            on=list(on) or None,
            samples=samples,
            min_tokens=min_tokens,
            progress=progress,
            **decoding,
        )
    if html:
        for note in result.notes:
            echo(note, err=True)
        echo(f"page: {result.write_html(html)}")
    elif as_json:
        print_json(result.as_json())
    else:
        echo(result.text(), nl=False)
