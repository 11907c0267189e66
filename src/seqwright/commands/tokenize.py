"""`seqwright tokenize`: tokens, ids and coverage statistics of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from seqwright.commands.checks import existing_inputs, input_path
from seqwright.commands.common import JSON, echo, print_json, print_table, text_or_line_chunks
from seqwright.core.printable import quantity

RATES = ("tokens_per_word", "bytes_per_token")


@click.command("tokenize")
@click.argument("tokenizer", type=click.Path())
@click.argument("texts", nargs=-1, metavar="[TEXT | FILE]...", callback=existing_inputs)
@click.option("--ids", is_flag=True, help="Print ids instead of tokens.")
@click.option("--summary", is_flag=True, help="Coverage statistics only.")
@JSON
def command(tokenizer: str, texts: Sequence[str], ids: bool, summary: bool, as_json: bool) -> None:
    """Tokenize TEXTs, or each line of FILEs or standard input, with TOKENIZER (a run, a tokenizer.json or a
    SentencePiece .model).

    A text is printed as a table of tokens and ids, a file as a line of tokens per line. Then prints coverage statistics
    per text or file: lines that do not round-trip, unknown tokens, bytes per token, tokens per word (fertility).
    --summary prints only these, with the most frequent unknown units and fertility by script.

    \b
    seqwright tokenize runs/notes-gpt "Once upon a time"
    seqwright tokenize runs/notes-gpt notes.txt --summary
    """
    loaded = _load(tokenizer)
    from seqwright.text.coverage import coverage

    for text in texts or ["-"]:
        lines = [line for chunk in text_or_line_chunks(text) for line in chunk]
        is_text = text != "-" and input_path(text) is None
        if is_text and not (summary or ids or as_json):
            _print_table(loaded, text)
        elif not summary:
            _print_tokens(loaded, lines, ids=ids, as_json=as_json)
        about = {
            "text" if is_text else "file": text,
            "kind": loaded.kind,
            "vocabulary": loaded.size,
            "lossless": loaded.lossless,
        }
        statistics = about | coverage(loaded, lines)
        if as_json:
            print_json(statistics)
        else:
            _print_coverage(statistics, to_stderr=not summary)


def _load(tokenizer: str) -> Any:
    from seqwright.core.config import UserError
    from seqwright.runs.directory import RunDirectory
    from seqwright.text.importing import import_tokenizer

    path = Path(tokenizer)
    if path.is_dir():
        path = RunDirectory.open(path).tokenizer_path
        if not path.exists():
            raise UserError(f"{tokenizer} has no tokenizer yet; train it first.")
    return import_tokenizer(path)


def _print_tokens(tokenizer: Any, lines: Sequence[str], *, ids: bool, as_json: bool) -> None:
    for line in lines:
        encoded = tokenizer.encode(line)
        exact = tokenizer.decode(encoded) == line
        tokens = tokenizer.tokens(encoded)
        if as_json:
            unknown = 0 if tokenizer.unk is None else encoded.count(tokenizer.unk)
            print_json({"text": line, "ids": encoded, "tokens": tokens, "unknown": unknown, "exact": exact})
        else:
            segmentation = " ".join(map(str, encoded) if ids else map(_visible, tokens))
            echo(f"{segmentation}{'' if exact else '    (lossy)'}")


def _visible(token: str) -> str:
    """A token with its spaces as ▁ (as in SentencePiece) and its line ends escaped: spaces separate tokens."""
    return "".join("▁" if letter == " " else letter if letter.isprintable() else repr(letter)[1:-1] for letter in token)


def _print_table(tokenizer: Any, text: str) -> None:
    """Prints the tokens of a text, one per row, with their ids."""
    from seqwright.reporting.terminal import Column, table

    encoded = tokenizer.encode(text)
    rows = [{"token": _visible(token), "id": id} for token, id in zip(tokenizer.tokens(encoded), encoded, strict=True)]
    print_table(table(rows, [Column("token", "token"), Column("id", "id", str)]))


def _print_coverage(statistics: dict[str, Any], *, to_stderr: bool) -> None:
    from seqwright.reporting.terminal import Column, table

    name = f"{statistics['file']}: " if statistics.get("file", "-") != "-" else ""
    counts = ", ".join(
        quantity(statistics[key], key.removesuffix("s")) for key in ("lines", "words", "tokens", "bytes")
    )
    counts += f", {statistics['unknown']:,} unknown"
    rates = [f"{statistics[key]:.2f} {key.replace('_', ' ')}" for key in RATES if statistics[key] is not None]
    kind = f"{'lossless' if statistics['lossless'] else 'lossy'} {statistics['kind']}"
    lossy = statistics["lines_not_exact"]
    exact = f"{quantity(lossy, 'line')} not restored exactly" if lossy else "restored exactly"
    echo(
        f"{name}{kind} vocabulary of {statistics['vocabulary']:,}; {counts}; {', '.join([*rates, exact])}.",
        err=to_stderr,
    )
    if to_stderr:
        return
    for unit in statistics["unknown_examples"]:
        echo(f"  unknown {unit['text']!r} {unit.get('name', '')}: {unit['count']:,}".replace(" :", ":"))
    columns = [
        Column("script", "script"),
        Column("words", "words", "{:,}".format),
        Column("tokens", "tokens", "{:,}".format),
        Column("tokens_per_word", "tokens/word", "{:.2f}".format),
    ]
    print_table(table(statistics["scripts"], columns))
