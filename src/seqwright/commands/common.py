"""What the commands share: options that read alike, and how results are printed."""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import click

AT_ONCE = 1 << 16
"""Lines of a file that are taken together."""
AHEAD = 1 << 16
"""Bytes read from standard input at most before what is in them is answered."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

RUN = click.argument("run", type=click.Path())
SET = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key; may be repeated.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object (or one a line) for machines.")
DEVICE = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", help="Where to compute."
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    default="fp32",
    help="What weights and states are held in; halves are faster on a GPU, and may say something else.",
)

BACK_OFF = click.option("--back-off", is_flag=True, help="For n-grams: which order answered for each token, and how.")


class Several(click.Command):
    """A command in which an option may be followed by several files: `--on SOURCE TARGET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: list[str]) -> list[str]:
    """`--pairs A B` as `--pairs A --pairs B`: --pairs, --on and, with --pairs, --valid take all up to the next."""
    greedy = {"--pairs", "--on"} | ({"--valid"} if "--pairs" in args else set())
    rewritten: list[str] = []
    option = ""
    for place, word in enumerate(args):
        if word.startswith("-") and word != "-":
            option = word
        elif option in greedy and args[place - 1] != option:
            rewritten.append(option)
        rewritten.append(word)
    return rewritten


def print_json(value: Any) -> None:
    """One line of JSON; numbers that JSON has no word for become null."""
    from seqwright.core.storage import to_json

    click.echo(to_json(value))


def print_table(table: Any) -> None:
    """A rich table on standard output, as wide as it needs to be where no window cuts it off."""
    from rich.console import Console

    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 10_000).print(table)


def print_back_off(answers: Any) -> None:
    """Of each token, the n-gram that answered, and what longer contexts passed on."""
    from seqwright.reporting.terminal import back_off_table

    print_table(back_off_table(answers))


def print_scores(scores: Any) -> None:
    """Scores with their intervals, and the signature they share."""
    from seqwright.reporting.terminal import scores_table, signature

    print_table(scores_table(scores))
    click.echo(signature(scores))


def each_picture(files: Iterable[str], ask: Callable[[list[str]], Iterable[T]]) -> Iterator[tuple[dict[str, Any], T]]:
    """What is said of each picture of some files or folders, behind the file it is in and its number there."""
    from seqwright.data.files import resolve
    from seqwright.data.images.files import image_files

    for file in files:
        inside = image_files(resolve(file)) if resolve(file).is_dir() else []
        for number, said in enumerate(ask([file])):
            yield {"file": str(inside[number]) if inside else file, "picture": number}, said


def read_lines(file: str | None) -> Iterator[str]:
    """Lines of a file (plain, .gz or .xz), or of standard input, without their ends."""
    for lines in lines_waiting(file):
        yield from lines


def text_or_lines(given: str | None) -> Iterator[str]:
    """Lines of a file, or the text itself: see `text_or_waiting`."""
    for lines in text_or_waiting(given):
        yield from lines


def is_file(given: str | None) -> bool:
    """Whether a file has this name."""
    try:
        return given is not None and Path(given).is_file()
    except OSError:  # a text that is too long for a name
        return False


def text_or_waiting(given: str | None) -> Iterator[list[str]]:
    """Lines of a file where there is one of this name; otherwise the text itself, unless it looks like the name of one:
    no space in it, but a folder or a suffix."""
    if given in (None, "-") or is_file(given):
        return lines_waiting(given)
    text = str(given)
    named = " " not in text and ("/" in text or Path(text).suffix.strip("."))  # from Python 3.14 on "Hello." has one
    return lines_waiting(text) if named else iter([[text]])


def lines_waiting(file: str | None) -> Iterator[list[str]]:
    """The same, as many at a time as there are without waiting for more: much of a file, what has come of an input."""
    from seqwright.data.files import lines_of, resolve

    if file is None or file == "-":
        yield from _typed()
        return
    lines = lines_of(resolve(file))
    while many := list(itertools.islice(lines, AT_ONCE)):
        yield many


def _typed() -> Iterator[list[str]]:
    from seqwright.data.files import decode_line

    typed = cast(io.BufferedReader, sys.stdin.buffer)
    number, begun = 1, b""
    while read := typed.read1(AHEAD):
        *whole, begun = (begun + read).split(b"\n")
        if whole:
            yield [decode_line(raw, number + n, "standard input") for n, raw in enumerate(whole)]
        number += len(whole)
    if begun:
        yield [decode_line(begun, number, "standard input")]


def reading(overrides: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Those of [data], which say how other files are read, and the rest."""
    own = [override for override in overrides if override.startswith("data.")]
    return own, tuple(override for override in overrides if override not in own)


def options_from(
    overrides: tuple[str, ...], section: str, config: type, given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Options of one section: those given by flag, and those of `--set section.key=value`, checked as in a recipe."""
    from seqwright.core.config import ConfigLoader, UserError, parse_override

    options = {key: value for key, value in (given or {}).items() if value is not None}
    for override in overrides:
        key, value = parse_override(override)
        name = key.removeprefix(f"{section}.")
        if name == key or "." in name:
            raise UserError(f"--set {override}: here only keys of [{section}] can be set, as in {section}.seed=2.")
        options[name] = value
    reader = ConfigLoader("options")
    checked = reader.read(config, options, section)
    reader.finish()
    return {name: getattr(checked, name) for name in options}
