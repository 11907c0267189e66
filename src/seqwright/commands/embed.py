"""`seqwright embed`: sentence embeddings from the encoder of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from seqwright.commands.checks import output_file
from seqwright.commands.common import COLUMNS, DEVICE, JSON, RUN, SET, TEXT_OR_FILE, echo, print_json
from seqwright.commands.tables import FORMAT, SKIP_BAD_ROWS, Reading, note_skipped, open_input, print_columns
from seqwright.core.printable import quantity

SUFFIXES = (".npz", ".safetensors")


@click.command("embed")
@RUN
@TEXT_OR_FILE
@click.option(
    "--pooling",
    type=click.Choice(["mean", "first", "last", "max"]),
    default="mean",
    help="Pooling of hidden states: mean or max over tokens, or the first or last token.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=output_file,
    help="Write an array to a .npz or .safetensors file.",
)
@COLUMNS
@FORMAT
@SKIP_BAD_ROWS
@SET
@DEVICE
@JSON
def command(
    run: str,
    text_or_file: str | None,
    pooling: str,
    out: Path | None,
    columns: tuple[str, ...],
    format: str | None,
    skip_bad_rows: bool,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Embed a text, or each line (or row of a table) of a file or standard input, with the encoder of RUN.

    \b
    seqwright embed runs/notes-bert lines.txt --out vectors.npz        (an array "vectors")
    echo "a fine film" | seqwright embed runs/reviews --json
    """
    from seqwright.api import open as open_run
    from seqwright.data.column_roles import parse_columns
    from seqwright.data.text_columns import TextColumns

    if out is not None and out.suffix not in SUFFIXES:
        raise click.UsageError(f"--out writes {' or '.join(SUFFIXES)}, not {out.name}.")
    truncated = [0]
    opened: Any = open_run(run, device=device, set=overrides)
    wanted = TextColumns(chosen=tuple(parse_columns(columns, ("text",)).values()))
    reading = Reading.of(opened, skip_bad_rows=skip_bad_rows)
    table = open_input(text_or_file, format, wanted, reading)
    print_columns(table, {})
    texts = (row.texts[0] for group in table.groups() for row in group)
    embeddings = _count_truncated(opened.embed(texts, pooling=pooling), truncated)
    if out is not None:
        write(out, [embedding.vector for embedding in embeddings])
        echo(f"{out} is written.", err=True)
    elif as_json:
        for number, embedding in enumerate(embeddings, 1):
            print_json({"line": number, "vector": embedding.vector.tolist(), "unread": embedding.unread})
    else:
        for embedding in embeddings:
            echo(" ".join(f"{value:.6g}" for value in embedding.vector.tolist()))
    note_skipped(table, reading)
    if truncated[0]:
        echo(f"truncated to the context of the model: {quantity(truncated[0], 'line')}.", err=True)


def write(path: Path, vectors: list[Any]) -> None:
    """Writes an array "vectors" of shape (lines, width)."""
    import io

    import numpy as np
    import torch

    from seqwright.core.storage import save_tensors, sweep, write_chunks

    sweep(path)
    array = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
    if path.suffix == ".safetensors":
        save_tensors(path, {"vectors": torch.from_numpy(array)})
        return
    buffer = io.BytesIO()
    np.savez(buffer, vectors=array)
    write_chunks(path, [buffer.getvalue()])


def _count_truncated(embeddings: Iterator[Any], truncated: list[int]) -> Iterator[Any]:
    for embedding in embeddings:
        truncated[0] += embedding.unread > 0
        yield embedding
