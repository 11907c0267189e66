"""`seqwright recipes`: built-in recipes and the reference of recipe keys."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seqwright.commands.common import JSON, PIPED_WIDTH, echo, print_json, print_table

if TYPE_CHECKING:
    from seqwright.pipeline.reference import Entry


@click.command("recipes")
@click.argument("name", required=False, metavar="[NAME | WORD]")
@click.option("--task", metavar="TASK", help="List the recipes of one task only, such as translation.")
@click.option("--lectures", is_flag=True, help="List the lectures' path in order: topics, recipes and their times.")
@click.option("--keys", is_flag=True, help="List every recipe key with its type, default and description.")
@click.option("--markdown", is_flag=True, help="Print the keys as Markdown: docs/reference.md.")
@JSON
def command(name: str | None, task: str | None, lectures: bool, keys: bool, markdown: bool, as_json: bool) -> None:
    """List the built-in recipes by task, print the recipe called NAME, or list all recipe keys.

    Any other word is searched for in names, tasks and descriptions.

    \b
    seqwright recipes shakespeare          (recipes about it)
    seqwright recipes shakespeare-cpu      (the recipe itself, to copy and change)
    seqwright recipes --lectures           (n-grams to Transformers, as they are taught)
    seqwright recipes --keys               (every key that a recipe may have)
    """
    from seqwright.core.config import UserError, did_you_mean
    from seqwright.pipeline import shipped
    from seqwright.reporting.terminal import Column, table

    if lectures:
        if name or task or keys or markdown:
            raise UserError("--lectures lists the whole path; leave the other options out.")
        _list_lectures(as_json)
        return
    matching: list[str] | None = None
    if name and not Path(name).is_file() and name not in shipped.shipped():
        matching = shipped.search(name)
    if markdown:
        from seqwright.pipeline import reference

        echo(reference.markdown(), nl=False)
        return
    if keys:
        from seqwright.pipeline import reference

        rows = [_row(entry) for entry in reference.entries()]
        columns = [
            Column("key", "key"),
            Column("type", "type"),
            Column("default", "default"),
            Column("help", "description"),
        ]
    elif name and not matching:
        text = shipped.find(name).read_text(encoding="utf-8")
        print_json({"name": name, "toml": text}) if as_json else echo(text, nl=False)
        return
    else:
        rows = [
            {"task": path.parent.name, "name": name, "about": shipped.about(path)}
            for name, path in sorted(shipped.shipped().items(), key=lambda item: (item[1].parent.name, item[0]))
        ]
        if matching is not None:
            rows = sorted((row for row in rows if row["name"] in matching), key=lambda row: matching.index(row["name"]))
        if task is not None:
            tasks = sorted({row["task"] for row in rows})
            rows = [row for row in rows if row["task"] == task]
            if not rows:
                raise UserError(f"no recipes of the task '{task}'.{did_you_mean(task, tasks)}")
        columns = [Column("task", "task"), Column("name", "name"), Column("about", "description")]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        if not keys and not sys.stdout.isatty():  # a recipe is one line, to be searched by grep
            room = PIPED_WIDTH - sum(max(len(row[key]) for row in rows) + 3 for key in ("task", "name")) - 2
            rows = [row | {"about": textwrap.shorten(row["about"], room, placeholder=" …")} for row in rows]
        print_table(table(rows, columns))


def _list_lectures(as_json: bool) -> None:
    """The path of the lectures; title and topics stand beside the first recipe of each."""
    from seqwright.reporting.numbers import duration
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.lectures import LECTURES

    rows = []
    for number, lecture in enumerate(LECTURES, 1):
        for practice in lecture.practice:
            if as_json:
                about = {"lecture": number, "title": lecture.title, "topics": lecture.topics}
                print_json(about | vars(practice))
            first = practice is lecture.practice[0]
            rows.append(
                {
                    "lecture": f"{number}. {lecture.title}" if first else "",
                    "topics": " ".join(lecture.topics) if first else "",
                    "recipe": practice.recipe,
                    "shows": practice.shows,
                    "time": f"{duration(practice.seconds)}, {practice.hardware}",
                }
            )
    if not as_json:
        columns = [Column("lecture", "lecture"), Column("topics", "seqwright explain")]
        columns += [Column("recipe", "seqwright train", wrap=False), Column("shows", "what it shows")]
        print_table(table(rows, [*columns, Column("time", "time")]))
        echo("Times were measured once, on a busy CPU core or a shared H200; docs/lectures has the notebooks.")


def _row(entry: Entry) -> dict[str, str]:
    """A table row for one key, its name dotted as for `--set`."""
    section = f"{entry.section} ({entry.kind})" if entry.kind else entry.section
    about = {"data": ", ".join(entry.data), "key": f"{section}.{entry.key}" if section else entry.key}
    return about | {"type": entry.type, "default": entry.default, "help": entry.help}
