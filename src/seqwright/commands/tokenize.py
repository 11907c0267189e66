"""`seqwright tokenize`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import JSON, print_json, read_lines


@click.command("tokenize")
@click.argument("tokenizer", type=click.Path())
@click.argument("file", required=False)
@click.option("--ids", is_flag=True, help="Show ids instead of tokens.")
@click.option("--summary", is_flag=True, help="Only the counts over all lines.")
@JSON
def command(tokenizer: str, file: str | None, ids: bool, summary: bool, as_json: bool) -> None:
    """How TOKENIZER (a run or a tokenizer.json) cuts each line of FILE or standard input, and what is lost."""
    from seqwright.config import UserError
    from seqwright.run_directory import RunDirectory
    from seqwright.text.tokenizer import Tokenizer

    path = Path(tokenizer)
    if path.is_dir():
        path = RunDirectory.open(path).tokenizer_path
        if not path.exists():
            raise UserError(f"{tokenizer} has no tokenizer yet; train it first.")
    opened = Tokenizer.open(path)
    lines = tokens = size = unknown = lost = 0
    for line in read_lines(file):
        encoded = opened.encode(line)
        missing = 0 if opened.unk is None else encoded.count(opened.unk)
        exact = opened.decode(encoded) == line
        lines, tokens, size = lines + 1, tokens + len(encoded), size + len(line.encode())
        unknown, lost = unknown + missing, lost + (not exact)
        if summary:
            continue
        if as_json:
            shown = {"text": line, "ids": encoded, "tokens": opened.tokens(encoded), "unknown": missing, "exact": exact}
            print_json(shown)
        else:
            cut = " ".join(map(str, encoded)) if ids else " ".join(repr(t)[1:-1] for t in opened.tokens(encoded))
            click.echo(f"{cut}{'' if exact else '    (not exact)'}")
    counts = {
        "kind": opened.kind,
        "vocabulary": opened.size,
        "lossless": opened.lossless,
        "lines": lines,
        "tokens": tokens,
        "bytes": size,
        "bytes_per_token": round(size / max(1, tokens), 4),
        "unknown": unknown,
        "lines_not_exact": lost,
    }
    if as_json:
        print_json(counts)
    else:
        said = ", ".join(
            f"{key.replace('_', ' ')} {value:,}" if type(value) is int else f"{key.replace('_', ' ')} {value}"
            for key, value in counts.items()
        )
        click.echo(said, err=not summary)
