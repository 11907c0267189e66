"""`seqwright tag`: sequence labeling of words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seqwright.commands.checks import input_path
from seqwright.commands.common import (
    COLUMNS,
    DEVICE,
    JSON,
    RUN,
    SET,
    TEXT_OR_FILE,
    echo,
    options_from,
    split_data_overrides,
)
from seqwright.commands.tables import (
    OUT,
    SKIP_BAD_ROWS,
    Output,
    Reading,
    input_name,
    note_empty,
    note_resembled,
    refuse_columns_of_text,
    table_progress,
    write_lines,
)

if TYPE_CHECKING:
    from seqwright.data.tables import TableRow
    from seqwright.data.tagged.annotated import ColumnFile

COLUMN_FORMATS = ("columns", "conllu", "lines")
"""Formats of column files, as in data.format."""
SHOWN_TAGS = 4
"""Tags in the message that says whose are written: the most frequent ones."""
TABLE_FORMATS = ("text", "csv", "tsv", "jsonl")


@click.command("tag")
@RUN
@TEXT_OR_FILE
@click.option("--pretokenized", is_flag=True, help="Words are separated by white space; split nothing else.")
@click.option(
    "--format",
    type=click.Choice([*TABLE_FORMATS, *COLUMN_FORMATS]),
    help="Format of the input: text (a sentence per line), a table, or columns, conllu or lines as in data.format."
    " Default: by its suffix and first lines.",
)
@COLUMNS
@SKIP_BAD_ROWS
@OUT
@SET
@DEVICE
@JSON
def command(
    run: str,
    text_or_file: str | None,
    pretokenized: bool,
    format: str | None,
    columns: tuple[str, ...],
    skip_bad_rows: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Tag each word of a text, of a file or of standard input, in order.

    A line is a sentence; it is split into words as the training data is, and the output is its words, a tab and their
    tags. Training words with a space, as in Vietnamese, stay whole and have an underscore in the output. In CoNLL and
    CoNLL-U files the tag column is replaced, and all other columns, comments and multiword lines stay. A .csv or
    .jsonl file (or a .tsv with --columns text=NAME) comes back with all columns, tokens and tags.

    \b
    seqwright tag runs/tags "Time flies like an arrow."
    seqwright tag runs/tags test.conllu --out tagged.conllu
    seqwright tag runs/tags mails.csv --columns text=body --out tagged.csv
    seqwright tag runs/tags test.conll --columns token=2,tag=4                 (other column layout)
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.data.column_roles import columns_override, parse_columns
    from seqwright.data.files import plain_suffix
    from seqwright.data.headers import TEXT_NAMES
    from seqwright.data.tables import Lines, open_table, resembled_format
    from seqwright.data.tagged.annotated import ColumnFile, conllu_sentence
    from seqwright.data.text_columns import TextColumns

    data_overrides, others = split_data_overrides(overrides)
    chosen = parse_columns(columns, ("text", "tokens", "token", "tag"))
    texts = tuple(chosen[role] for role in ("text", "tokens") if role in chosen)
    if chosen.keys() & {"token", "tag"}:
        data_overrides += columns_override(columns, "tagged")
    opened = open_run(run, device=device, set=data_overrides)
    # A tagger has no [decoding] keys: any override of them is an error.
    options_from(others, "decoding", type(opened.settings.decoding))
    tag = opened.tag  # raises here, before any input is read, where the run is no tagger
    reading = Reading.of(opened, skip_bad_rows=skip_bad_rows)
    name, path = input_name(text_or_file), input_path(text_or_file)
    lines = Lines(reading.chunks(text_or_file))
    given = path is None and text_or_file not in (None, "-")
    if chosen and given:
        raise UserError("--columns names columns of a file, and the input is a text; leave it out, or name a file.")
    sample = lines.peek()
    layout = any(override.startswith("data.columns=") for override in data_overrides) and not given
    format = format or _format(opened, sample, path, table=bool(texts), layout=layout, pretokenized=pretokenized)
    if format in ("text", *COLUMN_FORMATS):
        lines = Lines(note_empty(lines.chunks_left(), name))
    if format in COLUMN_FORMATS:
        data = opened.settings.data
        numbers = data.column_numbers if format != "conllu" or data_overrides or _conllu_names(data.columns) else None
        file = ColumnFile(lines, name, format, numbers)  # type: ignore[arg-type]
        _tag_columns(opened, file, text_or_file, out, as_json)
        return
    if format == "text" and (like := resembled_format(sample)):
        note_resembled(like)
    refuse_columns_of_text(format, texts)
    wanted = TextColumns(chosen=texts, names=("tokens", *TEXT_NAMES), word_lists=True)
    table = open_table(lines, name, format, wanted, skip_bad_rows=reading.skip_bad_rows)  # type: ignore[arg-type]
    words_given = pretokenized or table.text_columns == ("tokens",) or "tokens" in chosen
    if not words_given:
        echo(f"{opened.splitter.rules}; --pretokenized splits at white space only.", err=True)
    tokens = [] if table.text_columns == ("tokens",) else ["tokens"]
    output = Output(table, [*tokens, "tags"], out, reading, as_json=as_json)
    as_conllu = out is not None and plain_suffix(out) == ".conllu"
    tag_column = opened.settings.data.column_numbers[1] if _conllu_names(opened.settings.data.columns) else 4

    wordless = 0

    def results(rows: list[TableRow], first: int) -> Iterator[tuple[Any, dict[str, Any], str]]:
        nonlocal wordless
        sentences = tag((row.texts[0] for row in rows), pretokenized=words_given)
        for row, sentence in zip(rows, sentences, strict=True):
            # As many words in a line as tags: Hà_Nội.
            words = " ".join("_".join(word.split()) for word in sentence.words)
            tags = " ".join(sentence.tags)
            values = _values(sentence) if output.writer.format == "jsonl" else {"tokens": words, "tags": tags}
            if not tokens:
                del values["tokens"]
            text = f"{words}\t{tags}" if words else ""
            if as_conllu and not words:  # a sentence of CoNLL-U has a word
                wordless += 1
                continue
            if as_conllu:
                text = conllu_sentence(sentence.words, sentence.tags, tag_column, _text_of(row))
            yield row, values, text

    output.write(results, source=text_or_file, what="tagging")
    if wordless:
        echo(f"lines without a word, which are no sentences of CoNLL-U and left out: {wordless:,}.", err=True)


def _format(opened: Any, sample: list[str], path: Path | None, *, table: bool, layout: bool, pretokenized: bool) -> str:
    """The format of the input by its suffix and its first lines."""
    from seqwright.data.files import plain_suffix
    from seqwright.data.tables import format_of
    from seqwright.data.tagged.formats import sniff, spaced_columns

    by_suffix = "text" if path is None else format_of(path)
    content = next((line for line in sample if line.strip() and not line.startswith("# ")), "")
    if by_suffix in ("csv", "jsonl") or table:
        return by_suffix
    if layout or "\t" in content or (path is not None and plain_suffix(path) == ".conllu"):
        data = opened.settings.data
        kind = data.format or sniff("\n".join(sample), str(path or ""), data.column_numbers)
        return str(kind) if kind in COLUMN_FORMATS else "columns"
    numbers = opened.settings.data.column_numbers
    if (spaced := spaced_columns(sample, numbers, frozenset(opened.codec.tags))) is None:
        return "text"
    if spaced.certain and not pretokenized and not _conllu_names(opened.settings.data.columns):
        return "columns"
    named = f" --columns token={spaced.token},tag={spaced.tag}"
    echo(
        f"warning: lines such as {spaced.line!r} are taken as text, each as a sentence; --format columns"
        f"{'' if (spaced.token, spaced.tag) == (1, 2) else named} parses them as words and their tags.",
        err=True,
    )
    return "text"


def _tag_columns(opened: Any, file: ColumnFile, text_or_file: str | None, out: Path | None, as_json: bool) -> None:
    """Writes a file of columns with its tags replaced, or its sentences as JSON lines."""
    from seqwright.core.config import UserError
    from seqwright.core.storage import to_json
    from seqwright.data.tables import format_of

    if out is not None and format_of(out) == "csv":
        raise UserError(f"--out {out}: a file of columns is written as it is, or as JSON lines to a .jsonl file.")
    as_json = as_json or (out is not None and format_of(out) == "jsonl")

    def results() -> Iterator[str]:
        groups = file.groups()
        first = next(groups, [])  # which raises where the columns are others
        some = [*opened.codec.tags[:SHOWN_TAGS], *["…"] * (len(opened.codec.tags) > SHOWN_TAGS)]
        echo(
            f"{file.name}: reads column {file.token}, writes the run's tags ({', '.join(some)}) to column {file.tag}"
            f" ({file.format}).",
            err=True,
        )
        with table_progress(text_or_file, out, "tagging") as progress:
            done = 0
            for group in itertools.chain([first], groups):
                # In lines, a word has no space: Hà_Nội.
                words = (" ".join(one.words) if file.format == "lines" else one.words for one in group)
                for sentence, tagged in zip(group, opened.tag(words, pretokenized=True), strict=True):
                    if not as_json:
                        yield file.tagged(sentence, tagged.tags) + "\n"
                    elif tagged.words:
                        yield to_json(_values(tagged)) + "\n"
                done += len(group)
                progress.record({"bytes": file.lines.bytes_read, "lines": done})

    write_lines(results(), out, like=None if as_json else input_path(text_or_file))


def _conllu_names(columns: Any) -> bool:
    """Whether columns are named as in CoNLL-U, rather than numbered as in files of another layout."""
    from seqwright.data.tagged.formats import CONLLU

    return columns is not None and all(column in CONLLU for column in columns)


def _text_of(row: TableRow) -> str:
    """The text of a row on one line; of a list of words, with spaces between them."""
    return " ".join(row.texts[0].split() if isinstance(row.texts[0], str) else row.texts[0])


def _values(sentence: Any) -> dict[str, Any]:
    """The keys of a sentence in JSON; a perceptron has no probabilities."""
    values = {"tokens": sentence.words, "tags": sentence.tags, "probabilities": sentence.probabilities}
    return {key: value for key, value in values.items() if value is not None}
