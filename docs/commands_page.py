"""The page docs/commands.md, from the command line itself: `python docs/commands_page.py > docs/commands.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from seqwright.cli import COMMANDS, seqwright

OPENING = """# Commands

Made by `python docs/commands_page.py > docs/commands.md` from the command line. `seqwright COMMAND --help` prints the
same, `--json` makes the output of a command readable by programs, and [reference.md](reference.md) lists the keys
that `--set KEY=VALUE` takes.

| command | |
|---|---|"""


def lines() -> Iterator[str]:
    """A table of all commands, then each with its usage, examples and options."""
    context = click.Context(seqwright, info_name="seqwright")
    yield OPENING
    for name, help_line in COMMANDS.items():
        yield f"| [`{name}`](#{name}) | {cell(help_line)} |"
    for name in COMMANDS:
        command = seqwright.get_command(context, name)
        assert command is not None
        yield from section(command, click.Context(command, info_name=name, parent=context), "##")


def section(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    """A command, and its subcommands one level below."""
    yield f"\n{level} {context.command_path.removeprefix('seqwright ')}\n"
    # click keeps the line breaks of paragraphs after \\b: our examples.
    prose, *examples = inspect.cleandoc(command.help or "").split("\n\n\b\n")
    yield cell(re.sub(r"\s+", " ", prose))
    usage = " ".join(command.collect_usage_pieces(context))
    yield "\n".join(("\n```console", f"{context.command_path} {usage}", *(e.strip() for e in examples), "```\n"))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from section(inner, click.Context(inner, info_name=name, parent=context), level + "#")
        return
    yield "| option | |\n|---|---|"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None and "--help" not in parameter.opts:
            yield f"| `{cell(record[0])}` | {cell(record[1])} |"


def cell(text: str) -> str:
    """Text in a cell of a Markdown table; `<mask>` and the like are no HTML."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return "".join(
        part if part.startswith("`") else re.sub(r"<(\w)", r"&lt;\1", part) for part in re.split(r"(`[^`]*`)", text)
    )


def page() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    print(page(), end="")
