"""`seqwright inspect`: what a model computes on a text, as text, JSON or a page."""

from __future__ import annotations

import click

from seqwright.commands.checks import existing_files, existing_run, input_path, page_file
from seqwright.commands.common import JSON, RUN, echo, print_json, read_lines

MAX_CHARACTERS = 100_000
"""Characters of a file that are read: one text is inspected, not a corpus."""


def _span(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Two numbers of tokens: `3:8`."""
    if value is None:
        return None
    start, colon, stop = value.partition(":")
    if not (colon and start.isdecimal() and stop.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a span; write two numbers: 3:8.")
    return int(start), int(stop)


@click.command("inspect")
@RUN
@click.argument("text", required=False)
@click.option("--view", "views", multiple=True, metavar="NAME", help="View to show; may be repeated.")
@click.option("--layer", type=int, metavar="N", help="Layer of attention, gates and logit lens, from 0.")
@click.option("--head", type=int, metavar="N", help="Attention head, from 0.")
@click.option(
    "--span",
    callback=_span,
    metavar="A:B",
    help="Tokens to show, by their numbers: from A to B, without B (3:8 has five).",
)
@click.option("--top", type=click.IntRange(1, 100), default=5, help="Alternatives and neighbors of a token.")
@click.option("--target", metavar="TEXT", help="Translators: the target to inspect; by default the search's output.")
@click.option(
    "--against",
    type=click.Path(),
    callback=existing_run,
    metavar="RUN",
    help="Language models: gain over this run, such as an n-gram, token by token.",
)
@click.option(
    "--beside", metavar="TEXT", help="Second text: its views follow those of the first, attention side by side."
)
@click.option(
    "--on", callback=existing_files, metavar="FILE", help="Statistics of attention heads over a file: --view heads."
)
@click.option("--image", type=click.IntRange(0), default=0, metavar="N", help="Image of a file of several, from 0.")
@click.option(
    "--html", type=click.Path(dir_okay=False), callback=page_file, help="Write a page of all views instead of printing."
)
@JSON
def command(
    run: str,
    text: str | None,
    views: tuple[str, ...],
    layer: int | None,
    head: int | None,
    span: tuple[int, int] | None,
    top: int,
    target: str | None,
    against: str | None,
    beside: str | None,
    on: str | None,
    image: int,
    html: str | None,
    as_json: bool,
) -> None:
    """Show what RUN computes on TEXT, a file, or - (standard input); without TEXT on a sample of its validation data.
    For runs of images, TEXT is an image file.

    Views: tokens (surprisal, rank, next-token distribution), back-off (n-grams), image (patches), gain (with
    --against), saliency (gradients), transitions (CRF), attention, gates (LSTM, GRU), logit-lens, beam (the search
    tree), heads (statistics, also --on FILE), positions (similarity), neighbors and map (embeddings). Each run has
    those that its model allows.

    \b
    seqwright inspect runs/notes "The cat sat on the"
    seqwright inspect runs/notes-gpt "The cat sat" --view attention --layer 1 --head 0
    seqwright inspect runs/notes-gpt essay.txt --view logit-lens --span 100:140
    seqwright inspect runs/notes-gpt "The cat sat" --against runs/notes-ngram --view gain
    seqwright inspect runs/en-de "A dog runs." --html dog.html
    seqwright inspect runs/bert "it was too tired" --beside "it was too wide" --html pair.html
    seqwright inspect runs/notes-gpt --view heads --on notes.txt
    seqwright inspect runs/digits seven.png --view image --layer 1
    """
    from seqwright.core.config import UserError

    if html and as_json:
        raise UserError("--html writes a page; leave --json out.")
    from seqwright.api import inspect
    from seqwright.api import open as open_run
    from seqwright.tasks.images.run import ImageInputRun

    opened = open_run(run, device="cpu")
    chosen = {"layer": layer, "head": head, "top": top, "target": target, "beside": beside, "on": on, "image": image}
    given = text if isinstance(opened, ImageInputRun) else _text(text)
    inspection = inspect(opened, given, against=against, views=views, span=span, **chosen)
    if html:
        for note in inspection.notes:
            echo(note, err=True)
        echo(f"page: {inspection.write_html(html)}")
    elif as_json:
        print_json(inspection.as_json())
    else:
        echo(inspection.text(), nl=False, shades=True)


def _text(text_or_file: str | None) -> str | None:
    """The text, or the beginning of the file of this name or of standard input (-)."""
    if text_or_file is None or (text_or_file != "-" and input_path(text_or_file) is None):
        return text_or_file
    lines: list[str] = []
    characters = 0
    for line in read_lines(text_or_file):
        if characters + len(line) > MAX_CHARACTERS:
            lines.append(line[: MAX_CHARACTERS - characters])
            echo(f"{text_or_file}: only the first {MAX_CHARACTERS:,} characters are used.", err=True)
            break
        lines.append(line)
        characters += len(line) + 1
    return "\n".join(lines)
