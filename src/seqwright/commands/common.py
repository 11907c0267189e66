"""Shared by the commands: common options, parsing of overrides, line input and printing of results."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from seqwright.commands.checks import existing_files, existing_inputs, existing_run, input_path, is_file
from seqwright.core.printable import printable, shaded

if TYPE_CHECKING:  # imported by a command only when it runs: `seqwright --help` stays fast
    from seqwright.data.lines import LineDecoder
    from seqwright.decoding.options import SearchOptions

CHUNK_LINES, CHUNK_CHARACTERS = 1 << 13, 1 << 24
"""Maximum number of lines of a file in one chunk, and of their characters up to one line: bounds memory."""
READ_BYTES = 1 << 16
"""Maximum number of bytes read from standard input at a time."""

PIPED_WIDTH = 120
"""Columns of a table in a pipe or file: cells of text are wrapped; `--json` has everything."""
COMPLETE_WIDTH = 10_000
"""Columns of a table in a pipe or file of which no cell may be cut."""
IMPORT_SECONDS = 0.02
"""An interrupt that waits for the end of an import looks again after this time."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

RUN = click.argument("run", type=click.Path(), callback=existing_run)
TEXT_OR_FILE = click.argument("text_or_file", required=False, callback=existing_inputs)
SET = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a recipe key; may be repeated."
)
COLUMNS = click.option(
    "--columns",
    multiple=True,
    metavar="ROLE=COLUMN,…",
    help="Columns of a table by role, by name or number from 1: --columns text=review,label=stars. A first row with a"
    " usual name (text, label, id …) is a header, however columns are selected.",
)
SKIP_LABELED = click.option(
    "--skip-bad-rows", is_flag=True, help="Labeled texts: skip malformed rows (data.bad_rows=skip)."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, or one per line.")
DEVICE = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", help="Device to compute on."
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16", "fp16", "int8"]),
    default="fp32",
    help="dtype of weights and KV cache: bf16 and, on a GPU, fp16 are faster, as is int8 (weights only) on a CPU; they"
    " may change the output, and `evaluate` prints what they cost.",
)

TRUST = click.option("--trust", is_flag=True, help="Read the data files that a run made elsewhere names.")


def on_files(help: str) -> Callable[[F], F]:
    """--on FILE..., the data of a command that scores runs."""
    return click.option("--on", "on", multiple=True, metavar="FILE...", callback=existing_files, help=help)


BACK_OFF = click.option(
    "--back-off", is_flag=True, help="n-grams only: the order that was used for each token and its back-off weights."
)


ARGUMENTS = "seqwright.arguments"
"""Where a click context has the arguments of its command as they were given."""


class MultiValueCommand(click.Command):
    """A command with options that take several values: `--on SOURCE TARGET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, repeat_options(args))


def repeat_options(args: list[str]) -> list[str]:
    """`--pairs A B` rewritten to `--pairs A --pairs B`, which click can parse.

    --pairs, --images and --on take all arguments up to the next option, and so does --valid beside --pairs.
    """
    greedy = {"--pairs", "--images", "--on"} | ({"--valid"} if "--pairs" in args else set())
    rewritten: list[str] = []
    option = ""
    for position, argument in enumerate(args):
        if argument.startswith("-") and argument != "-":
            option = argument
        elif option in greedy and args[position - 1] != option:
            rewritten.append(option)
        rewritten.append(argument)
    return rewritten


def echo(text: str = "", *, nl: bool = True, err: bool = False, shades: bool = False) -> None:
    """Prints text, which may come from files and models: on a terminal its control characters are escaped, and with
    `shades` its bars are colored."""
    if (sys.stderr if err else sys.stdout).isatty():
        text = shaded(printable(text)) if shades else printable(text)
    click.echo(text, nl=nl, err=err)


def print_json(value: Any) -> None:
    """Prints one line of JSON; NaN and infinities, which JSON lacks, become null."""
    from seqwright.core.storage import to_json

    echo(to_json(value))


def print_table(table: Any, *, width: int = PIPED_WIDTH) -> None:
    """Prints a rich table to standard output, at most `width` wide unless that is a terminal."""
    from rich.console import Console

    Console(file=sys.stdout, width=None if sys.stdout.isatty() else width).print(table)


def print_parts(parts: Iterable[Any]) -> None:
    """Prints the lines and tables of a result, in order."""
    for part in parts:
        if isinstance(part, str):
            echo(part)
        else:
            print_table(part)


@contextmanager
def resumable(sentence: Callable[[], str] = lambda: "stopped; the same command resumes.") -> Iterator[None]:
    """Context manager of a command that resumes: Ctrl-C says so, with the exit status of SIGINT."""
    try:
        with _interrupts_after_imports():
            yield
    except KeyboardInterrupt:
        echo(sentence(), err=True)
        raise click.exceptions.Exit(130) from None


@contextmanager
def _interrupts_after_imports() -> Iterator[None]:
    """An interrupt within an import, which the start of a command ends at once, waits until it is imported: what the
    work has begun is put in order first."""
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    main = threading.current_thread() is threading.main_thread()  # Python sets handlers only there
    handled = [number for number, handler in before.items() if main and callable(handler)]  # not those ignored

    def interrupt(number: int, frame: Any) -> None:
        outer = frame
        while outer is not None and not outer.f_code.co_filename.startswith("<frozen importlib"):
            outer = outer.f_back
        if outer is None:
            before[number](number, None)
        else:
            threading.Timer(IMPORT_SECONDS, signal.raise_signal, (number,)).start()

    for number in handled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def table_width(table: Any) -> int:
    """Columns of a rich table of which no cell is wrapped."""
    from rich.console import Console

    return Console(width=COMPLETE_WIDTH).measure(table).maximum


def back_off_text(tokens: Any) -> str:
    """A table with the n-gram order used for each token and the back-off weights of longer contexts."""
    from seqwright.reporting.terminal import back_off_table

    return table_text(back_off_table(tokens))


def table_text(table: Any) -> str:
    """A rich table as text, as `print_table` prints it."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=None if sys.stdout.isatty() else COMPLETE_WIDTH).print(table)
    return text.getvalue().rstrip("\n")


def print_scores(scores: Any, fingerprint: str, baseline: Mapping[str, Any] | None = None) -> None:
    """Prints scores with their confidence intervals, beside those of a baseline; then the signature they share and the
    model they belong to."""
    from seqwright.reporting.terminal import scores_table, signature

    print_table(scores_table(scores, baseline))
    echo(signature(scores, fingerprint))


def predict_images(
    files: Iterable[str], predict: Callable[[Iterator[str]], Iterable[T]]
) -> Iterator[tuple[dict[str, Any], T]]:
    """The prediction for each image of image files, arrays or folders, with its file and its index in that file."""
    from seqwright.data.files import resolve
    from seqwright.data.images.files import image_files

    for file in files:
        inside = image_files(resolve(file)) if resolve(file).is_dir() else []
        for index, prediction in enumerate(predict(iter([file]))):  # of an iterator, results come one by one
            yield {"file": str(inside[index]) if inside else file, "image": index}, prediction


def piped() -> bool:
    """Whether a pipe or file that holds something is standard input, as of `echo TEXT | seqwright …`."""
    try:
        import fcntl
        import termios

        kind = os.fstat(sys.stdin.fileno())
        if stat.S_ISREG(kind.st_mode):
            return kind.st_size > 0
        waiting = fcntl.ioctl(sys.stdin, termios.FIONREAD, bytes(4)) if stat.S_ISFIFO(kind.st_mode) else b""
        return any(waiting)
    except (ImportError, OSError, ValueError, AttributeError):  # Windows; closed, or replaced
        return False


def note_file_names(texts: Iterable[str], option: str) -> None:
    """Prints that a text is the name of a file, which another option reads."""
    for text in texts:
        if is_file(text):
            echo(f"'{text}' is taken as the text itself; {option} {text} reads the file.", err=True)


def read_lines(file: str | None) -> Iterator[str]:
    """Lines of a file (plain, .gz or .xz) or of standard input, without line ends."""
    for lines in line_chunks(file):
        yield from lines


def text_or_line_chunks(
    text_or_file: str | None, encoding: str | None = None, errors: Any = "strict"
) -> Iterator[list[str]]:
    """Chunks of lines of a file or of standard input, or the text itself; see `input_path`."""
    if text_or_file in (None, "-") or input_path(text_or_file) is not None:
        return line_chunks(text_or_file, encoding, errors)
    return iter([[str(text_or_file)]])


def line_chunks(file: str | None, encoding: str | None = None, errors: Any = "strict") -> Iterator[list[str]]:
    """Lines in chunks: up to CHUNK_LINES of a file; of standard input, all that have arrived, without blocking.

    `encoding` and `errors` are keys of [data]; None is UTF-8 of a command that has no such keys.
    """
    from seqwright.data.files import resolve
    from seqwright.data.lines import LineDecoder, lines_of

    if file is None or file == "-":
        yield from _stdin_chunks(LineDecoder("standard input", encoding, errors, piped=True))
        return
    chunk: list[str] = []
    characters = 0
    for line in lines_of(resolve(file), encoding, errors):
        chunk.append(line)
        characters += len(line)
        if len(chunk) >= CHUNK_LINES or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _stdin_chunks(decoder: LineDecoder) -> Iterator[list[str]]:
    # read1 returns what is there instead of waiting for a full buffer, so a line is processed before the next arrives.
    stdin = cast(io.BufferedReader, sys.stdin.buffer)
    while block := stdin.read1(READ_BYTES):
        if lines := decoder.feed(block):
            yield lines
    if lines := decoder.finish():
        yield lines


def split_data_overrides(overrides: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Overrides of [data] keys, which control how files are parsed, and all others."""
    data = [override for override in overrides if override.startswith("data.")]
    return data, tuple(override for override in overrides if override not in data)


def options_from(
    overrides: tuple[str, ...], section: str, config: type, flags: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Options of one section, from flags and from `--set section.key=value`, validated as in a recipe."""
    options = _given(overrides, section, flags or {})
    return _validated(options, options, section, config)


def search_options_from(overrides: tuple[str, ...], search: SearchOptions, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The same for [decoding] of a search, with the options that they imply beside those of this search."""
    from seqwright.core.config import to_table
    from seqwright.decoding.options import with_implied

    options = with_implied(search, _given(overrides, "decoding", flags))
    return _validated(options, to_table(search) | options, "decoding", type(search))


def _given(overrides: tuple[str, ...], section: str, flags: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the user gave."""
    from seqwright.core.config import UserError, parse_override

    options = {key: value for key, value in flags.items() if value is not None}
    for override in overrides:
        key, value = parse_override(override)
        name = key.removeprefix(f"{section}.")
        if name == key or "." in name:
            raise UserError(f"--set {override}: here only keys of [{section}] can be set, as in {section}.seed=2.")
        options[name] = value
    return options


def _validated(options: Mapping[str, Any], table: Mapping[str, Any], section: str, config: type) -> dict[str, Any]:
    """Options as values of this section, whose table they are part of."""
    from seqwright.core.config import ConfigLoader

    loader = ConfigLoader("command line")
    validated = loader.read(config, table, section)
    loader.finish()
    return {name: getattr(validated, name) for name in options}
