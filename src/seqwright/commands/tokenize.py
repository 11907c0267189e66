"""`seqwright tokenize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import JSON, print_json, print_table, read_lines


@click.command("tokenize")
@click.argument("tokenizer", type=click.Path())
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--ids", is_flag=True, help="Show ids instead of tokens.")
@click.option("--summary", is_flag=True, help="Only the report: what is lost, what is unknown, how fine the cuts are.")
@JSON
def command(tokenizer: str, files: Sequence[str], ids: bool, summary: bool, as_json: bool) -> None:
    """How TOKENIZER (a run, a tokenizer.json or a SentencePiece .model) cuts each line of FILEs or standard input.

    Counts of each file follow: what is lost and unknown, bytes per token, tokens per word. With --summary they come
    alone, with what is unknown most often and the cuts of each script's words.
    """
    opened = _open(tokenizer)
    from seqwright.text.coverage import coverage

    for file in files or ["-"]:
        lines = list(read_lines(file))
        if not summary:
            _show(opened, lines, ids=ids, as_json=as_json)
        about = {"file": file, "kind": opened.kind, "vocabulary": opened.size, "lossless": opened.lossless}
        found = about | coverage(opened, lines)
        if as_json:
            print_json(found)
        else:
            _report(found, aside=not summary)


def _open(tokenizer: str) -> Any:
    from seqwright.core.config import UserError
    from seqwright.runs.directory import RunDirectory
    from seqwright.text.importing import import_tokenizer

    path = Path(tokenizer)
    if path.is_dir():
        path = RunDirectory.open(path).tokenizer_path
        if not path.exists():
            raise UserError(f"{tokenizer} has no tokenizer yet; train it first.")
    return import_tokenizer(path)


def _show(tokenizer: Any, lines: Sequence[str], *, ids: bool, as_json: bool) -> None:
    for line in lines:
        encoded = tokenizer.encode(line)
        exact = tokenizer.decode(encoded) == line
        tokens = tokenizer.tokens(encoded)
        if as_json:
            missing = 0 if tokenizer.unk is None else encoded.count(tokenizer.unk)
            print_json({"text": line, "ids": encoded, "tokens": tokens, "unknown": missing, "exact": exact})
        else:
            cut = " ".join(map(str, encoded)) if ids else " ".join(repr(token)[1:-1] for token in tokens)
            click.echo(f"{cut}{'' if exact else '    (not exact)'}")


def _report(found: dict[str, Any], *, aside: bool) -> None:
    from seqwright.reporting.terminal import Column, table

    lists = ("unknown_examples", "scripts")
    said = ", ".join(
        f"{key.replace('_', ' ')} {value:,}" if type(value) is int else f"{key.replace('_', ' ')} {value}"
        for key, value in found.items()
        if key not in lists
    )
    click.echo(said, err=aside)
    if aside:
        return
    for unit in found["unknown_examples"]:
        click.echo(f"  unknown {unit['text']!r} {unit.get('name', '')}: {unit['count']:,}".replace(" :", ":"))
    columns = [
        Column("script", "script"),
        Column("words", "words", "{:,}".format),
        Column("tokens", "tokens", "{:,}".format),
        Column("tokens_per_word", "tokens/word", "{:.2f}".format),
    ]
    print_table(table(found["scripts"], columns))
