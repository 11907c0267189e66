"""`seqwright explain`: the algorithms of the lectures, computed step by step by the shipped classes."""

from __future__ import annotations

import click

from seqwright.commands.checks import input_path, page_file
from seqwright.commands.common import JSON, echo, print_json, print_table, read_lines

MAX_LINES, MAX_CHARACTERS = 1000, 100_000
"""Lines of a file that are read, and characters: an explanation is an example, not a corpus."""


@click.command("explain")
@click.argument("topic", required=False)
@click.option(
    "--on",
    "text",
    metavar="TEXT",
    help="Compute it on this text or file (vit: an image) instead of the lectures' example.",
)
@click.option("--run", "run", type=click.Path(), help="Compute it with this trained run.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a number of the example, as in --set temperature=0.5 or --set 'W_Q[0,1]=2'; may be repeated.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    callback=page_file,
    help="Write a page to step through instead of printing.",
)
@click.option("--step", type=click.IntRange(1), metavar="N", help="Print step N only.")
@JSON
def command(
    topic: str | None,
    text: str | None,
    run: str | None,
    overrides: tuple[str, ...],
    html: str | None,
    step: int | None,
    as_json: bool,
) -> None:
    """Explain TOPIC step by step: every matrix with its name, shape and formula, computed by the code that trains and
    decodes. Without TOPIC, list the topics.

    \b
    seqwright explain
    seqwright explain attention --set 'X[0,1]=0.9'
    seqwright explain bpe --on "low lower newest widest"
    seqwright explain sampling --run runs/notes --on "Once upon" --html sampling.html
    """
    from seqwright.core.config import UserError

    if topic is None:
        if text is not None or run is not None or overrides or html or step:
            raise UserError("name a topic; `seqwright explain` lists them.")
        _list_topics(as_json)
        return
    if html and (as_json or step is not None):
        raise UserError("--html writes a page of all steps; leave --json and --step out.")
    from seqwright.api import explain
    from seqwright.studies.explain.catalog import find

    explanation = explain(topic, on=text if find(topic).image else _text(text), run=run, set=overrides)
    if html:
        echo(f"page: {explanation.write_html(html)}")
    elif as_json:
        print_json(explanation.as_json(step))
    else:
        echo(explanation.text(step), nl=False)
        if explanation.settings:
            echo(f"\n--set changes: {', '.join(explanation.settings)}")


def _text(text_or_file: str | None) -> str | None:
    """The text, or the first lines of the file of this name or of standard input (-)."""
    if text_or_file is None or (text_or_file != "-" and input_path(text_or_file) is None):
        return text_or_file
    lines: list[str] = []
    characters = 0
    for line in read_lines(text_or_file):
        if lines and (len(lines) == MAX_LINES or characters + len(line) > MAX_CHARACTERS):
            echo(f"{text_or_file}: only the first {len(lines):,} lines are used.", err=True)
            break
        lines.append(line[:MAX_CHARACTERS])
        characters += len(line)
    return "\n".join(lines)


def _list_topics(as_json: bool) -> None:
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.explain.catalog import TOPICS

    if as_json:
        for name, topic in TOPICS.items():
            print_json({"topic": name, "about": topic.about, "on": topic.on, "run": topic.run or None})
        return
    rows = [
        {
            "topic": name,
            "about": topic.about,
            "on": "yes" if topic.on else "with --run" if topic.run and topic.run_text else "",
            "run": topic.run,
        }
        for name, topic in TOPICS.items()
    ]
    columns = [Column("topic", "topic", wrap=False), Column("about", "what it computes")]
    print_table(table(rows, [*columns, Column("on", "--on"), Column("run", "--run")]))
    echo("seqwright explain TOPIC prints the steps; --on TEXT and --run RUN compute them on your own, and --html FILE")
    echo("writes a page to step through.")
