"""Shared by the commands that annotate texts: lines and tables in, the same with added columns out."""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqwright.commands.checks import input_path, output_file
from seqwright.commands.common import echo, text_or_line_chunks
from seqwright.commands.ranked import command_ranks, in_rank_order, rank_part, sum_over_ranks
from seqwright.core.config import UserError
from seqwright.core.printable import quantity

if TYPE_CHECKING:  # imported by a command only when it runs: `seqwright --help` stays fast
    from seqwright.core.progress import Progress
    from seqwright.core.ranks import Ranks
    from seqwright.data.tables import Table, TableRow
    from seqwright.data.text_columns import TextColumns

OTHER_FORMATS = (".xlsx", ".xls", ".ods", ".json", ".parquet", ".feather", ".arrow", ".html")
"""Suffixes of tables that other programs would not find in lines of text."""
REPORT_ROWS = 64
"""Rows between reports of progress."""

OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=output_file,
    help="Write to FILE at once when all is done: .csv, .tsv and .jsonl keep every column and add the results.",
)
FORMAT = click.option(
    "--format",
    type=click.Choice(["text", "csv", "tsv", "jsonl"]),
    help="Format of the input. Default: by its suffix; standard input is text (plain lines), or a table where its first"
    " line has the columns of the training files by name.",
)


SKIP_BAD_ROWS = click.option(
    "--skip-bad-rows",
    is_flag=True,
    help="Leave malformed rows of a table out and report how many. Default: as in training (data.bad_rows).",
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How an input is read, as the training files were unless the user says otherwise."""

    encoding: str | None = None
    """None is UTF-8, and no key names another."""
    errors: Any = "strict"
    skip_bad_rows: bool = False
    skips_as_trained: bool = False
    """Whether malformed rows are left out since the run says so, and not an option of the command."""

    @classmethod
    def of(cls, run: Any, *, skip_bad_rows: bool = False) -> Reading:
        """That of the [data] keys of a run."""
        from seqwright.data.files import UTF_8

        data = run.settings.data
        trained = getattr(data, "bad_rows", "refuse") == "skip"
        return cls(
            encoding=getattr(data, "encoding", UTF_8),
            errors=getattr(data, "errors", "strict"),
            skip_bad_rows=skip_bad_rows or trained,
            skips_as_trained=trained and not skip_bad_rows,
        )

    def converts(self, table: Table) -> bool:
        """Whether a table is a file in another encoding than UTF-8, which all output is in."""
        from seqwright.data.files import UTF_8, check_encoding
        from seqwright.data.lines import line_style

        path = input_path(table.name)
        is_utf8 = check_encoding(self.encoding or UTF_8).startswith(UTF_8)
        return not is_utf8 and path is not None and not line_style(path)[0]

    def chunks(self, text_or_file: str | None) -> Iterator[list[str]]:
        """Chunks of lines of a file or of standard input, or the text itself."""
        return text_or_line_chunks(text_or_file, self.encoding, self.errors)


def open_input(text_or_file: str | None, format: Any, wanted: TextColumns, reading: Reading) -> Table:
    """The table of a file or of standard input, or of a single text."""
    from seqwright.data.tables import Lines, first_line, format_of, open_table, trained_format

    piped, path = text_or_file in (None, "-"), input_path(text_or_file)
    if piped and command_ranks() is not None:
        raise UserError("several processes share a file, and standard input is one stream; name a file.")
    lines = Lines(reading.chunks(text_or_file))
    if format is None:
        format = "text" if path is None else format_of(path)
        columns = wanted.chosen or wanted.trained
        format = (trained_format(first_line(lines), columns) if piped and columns else None) or format
        if format == "text":
            lines = Lines(_noted(lines.chunks_left(), len(wanted.roles)))
    refuse_columns_of_text(format, wanted.chosen)
    if path is None:  # how many rows of a pipe have arrived is chance: its columns are not inferred from values
        wanted = replace(wanted, classes=False)
    name = input_name(text_or_file)
    if format == "text":
        lines = Lines(note_empty(lines.chunks_left(), name))
    return open_table(lines, name, format, wanted, skip_bad_rows=reading.skip_bad_rows)


def input_name(text_or_file: str | None) -> str:
    """The name of an input, for messages."""
    return "standard input" if input_path(text_or_file) is None else str(text_or_file)


def _noted(chunks: Iterable[list[str]], texts: int) -> Iterator[list[str]]:
    """The same chunks of lines of so many texts each; first lines like those of a table are pointed out."""
    from seqwright.data.tables import SAMPLE_LINES, resembled_format

    for number, chunk in enumerate(chunks):
        like = resembled_format(chunk[:SAMPLE_LINES]) if number == 0 else None
        if like is not None and (like, texts) != ("tsv", 2):  # a pair of texts is separated by a tab
            note_resembled(like)
        yield chunk


def note_resembled(format: str) -> None:
    """Prints that plain text starts like a table, whose header would be a text."""
    echo(
        f"each line, the first one, too, is taken as a text; --format {format} reads the columns of a table.", err=True
    )


def note_skipped(table: Table, reading: Reading) -> None:
    """Prints how many malformed rows of a table were left out, if any, and why that was no error."""
    if table.skipped is not None and table.skipped.count:
        why = ' The run has data.bad_rows = "skip"; --set data.bad_rows=refuse makes them errors.'
        echo(f"{table.skipped.note(table.name)}{why if reading.skips_as_trained else ''}", err=True)


def note_empty(chunks: Iterable[list[str]], name: str) -> Iterator[list[str]]:
    """The same chunks of lines; where there are none, prints it at the end: no output is then no fault."""
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        echo(f"{name} is empty.", err=True)


def refuse_columns_of_text(format: str, chosen: Sequence[str]) -> None:
    """Raises where columns are named for an input that has none."""
    if format == "text" and chosen:
        raise UserError(
            "--columns names columns of a table, and the input is plain text; say what it is: --format csv, tsv or"
            " jsonl."
        )


@contextmanager
def table_progress(text_or_file: str | None, out: Path | None, what: str) -> Iterator[Progress]:
    """Progress over the bytes of a file; nothing where results are printed to the same terminal."""
    from seqwright.data.files import COMPRESSED
    from seqwright.reporting.progress import StreamProgress

    path = input_path(text_or_file)
    total = path.stat().st_size if path is not None and path.suffix not in COMPRESSED else None
    quiet = path is None or (out is None and sys.stdout.isatty())
    with StreamProgress(total, what=what, unit="lines", quiet=quiet) as progress:
        yield progress


def write_lines(lines: Iterable[str], out: Path | None, *, like: Path | None = None, marked: bool = False) -> None:
    """Writes lines to a file, which is complete or as it was before, or to standard output as they come.

    The file gets the byte order mark and the line ends of `like`; `marked`: a mark in any case. Without it, a
    spreadsheet misreads UTF-8.
    """
    from seqwright.core.storage import sweep, write_chunks
    from seqwright.data.files import BYTE_ORDER_MARK
    from seqwright.data.lines import line_style
    from seqwright.data.tables import format_of

    if out is not None:
        sweep(out)
        mark, end = ("", "\n") if like is None else line_style(like)
        mark = BYTE_ORDER_MARK if marked else mark
        # Line ends inside the cells of a CSV file are part of their text.
        ended = (f"{line[:-1]}{end}" if format_of(out) == "csv" else line.replace("\n", end) for line in lines)
        write_chunks(out, (text.encode() for text in itertools.chain([mark], ended)))
        echo(f"{out} is written.", err=True)
        return
    for line in lines:
        echo(line, nl=False)


def print_columns(table: Table, names: Mapping[str, str]) -> None:
    """Prints which columns of a table are read, and which are added: by their usual names, those that they have; or
    that it is empty."""
    if table.format == "text":
        return
    if not table.columns:
        echo(f"{table.name} is empty.", err=True)
        return
    layout = ("" if table.header else ", no header") + (", cells are quoted" if table.quoted else "")
    read = ", ".join(f"'{column}'" for column in table.text_columns)
    added = f"; adds {', '.join(names.values())}" if names else ""
    renamed = [f"'{name}' is taken" for name, column in names.items() if column != name]
    why = f" ({', '.join(renamed)})" if renamed else ""
    echo(f"{table.name}: reads column {read}{layout}{added}{why}.", err=True)


Results = Callable[["list[TableRow]", int], "Iterable[tuple[TableRow, Mapping[str, Any] | None, str]]"]
"""(row, values, text) triples of a group of rows, the first of which has this number from 1. The values are written to
a table or JSON, else the text; a row without values stays as it was read."""


class Output:
    """Where results go: standard output or a file, as text or as a table."""

    progress: Progress
    """Of the rows that are being written."""

    def __init__(
        self,
        table: Table,
        added: Sequence[str],
        out: Path | None,
        reading: Reading,
        *,
        as_json: bool,
        kept: bool = False,
    ):
        """`added` columns of a table; `kept`: rows are written as they were read."""
        from seqwright.data.files import COMPRESSED
        from seqwright.data.table_writer import TableWriter
        from seqwright.data.tables import format_of

        if out is not None and (out.is_dir() or out.suffix in (*COMPRESSED, *OTHER_FORMATS)):
            what = "is a folder" if out.is_dir() else f"would be in a format that is not written ({out.suffix})"
            raise UserError(f"--out {out} {what}; name a file that ends in .csv, .tsv, .jsonl or .txt.")
        if out is not None and as_json and format_of(out) != "jsonl":
            raise UserError(f"--json writes JSON lines, and --out {out} does not end in .jsonl; leave one out.")
        format = format_of(out) if out is not None else "jsonl" if as_json else table.format
        self.table, self.out, self.reading = table, out, reading
        self.writer = TableWriter(table, format, () if kept else added)
        print_columns(table, self.writer.names)
        self.converted = reading.converts(table)
        if self.converted:
            echo(f"{table.name} is read as {reading.encoding}; the output is UTF-8.", err=True)

    def write(self, results: Results, *, source: str | None, what: str) -> None:
        """Writes the results of every row of the table, in order; ranks of a command share each group of rows.

        `source` is the table's file, and `what` is done with it, for progress.
        """
        kept = self.writer.format == self.table.format  # JSON lines of a CSV have no byte order mark
        like = input_path(self.table.name) if kept else None
        ranks = command_ranks()
        with table_progress(source, self.out, what) as self.progress:
            lines = self._lines(results, ranks)
            if ranks is None or ranks.first:
                write_lines(lines, self.out, like=like, marked=self.converted and self.writer.format == "csv")
            else:
                collections.deque(lines, maxlen=0)
        note_skipped(self.table, self.reading)  # every rank reads all rows, and only rank 0 prints
        if flattened := sum_over_ranks(self.writer.flattened):
            echo(
                f"{quantity(flattened, 'cell')} had tabs or line ends, which .tsv has no way to hold without quotes:"
                " now spaces.",
                err=True,
            )

    def _lines(self, results: Results, ranks: Ranks | None) -> Iterator[str]:
        if head := self.writer.head():
            yield head
        done = before = 0
        for group in self.table.groups():
            after = self.table.lines.bytes_read  # at the end of the group, which was read as a whole
            lines: Iterable[str] = self._rendered(group, results, done + 1)
            if ranks is not None:
                first = done + 1 + ranks.rows(len(group)).start
                lines = in_rank_order(ranks, partial(self._rendered, rank_part(group, ranks), results, first))
            for n, line in enumerate(lines, 1):
                yield line
                if n % REPORT_ROWS == 0:
                    self.progress.record({"bytes": before + (after - before) * n // len(group), "lines": done + n})
            done, before = done + len(group), after

    def _rendered(self, rows: list[TableRow], results: Results, first: int) -> Iterator[str]:
        for row, values, text in results(rows, first) if rows else ():
            if values is None:
                yield self.writer.unchanged(row)
            else:
                yield f"{text}\n" if self.writer.format == "text" else self.writer.row(row, values)
