"""`seqwright embed`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import DEVICE, JSON, RUN, print_json, read_lines

SUFFIXES = (".npz", ".safetensors")


@click.command("embed")
@RUN
@click.argument("file", required=False)
@click.option(
    "--pooling",
    type=click.Choice(["mean", "first", "last", "max"]),
    default="mean",
    help="The vector of a line: the mean or largest of all its tokens', or that of the first or last.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write them as .npz or .safetensors.")
@DEVICE
@JSON
def command(run: str, file: str | None, pooling: str, out: Path | None, device: str, as_json: bool) -> None:
    """One vector for each line of FILE or standard input, from any run with an encoder.

    \b
    seqwright embed runs/notes-bert lines.txt --out vectors.npz        (an array "vectors")
    echo "a fine film" | seqwright embed runs/reviews --json
    """
    from seqwright.api import open as open_run

    if out is not None and out.suffix not in SUFFIXES:
        raise click.UsageError(f"--out writes {' or '.join(SUFFIXES)}, not {out.name}.")
    unread = [0]
    opened: Any = open_run(run, device=device)
    found = _counting(opened.embed(read_lines(file), pooling=pooling), unread)
    if out is not None:
        write(out, [one.vector for one in found])
    elif as_json:
        for number, one in enumerate(found, 1):
            print_json({"line": number, "vector": one.vector.tolist(), "unread": one.unread})
    else:
        for one in found:
            click.echo(" ".join(f"{value:.6g}" for value in one.vector.tolist()))
    if unread[0]:
        click.echo(f"{unread[0]:,} line(s) did not fit the model; their ends were not read.", err=True)


def write(path: Path, vectors: list[Any]) -> None:
    """An array (lines, width) called "vectors"."""
    import io

    import numpy as np
    import torch

    from seqwright.core.storage import save_tensors, write_chunks

    array = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
    if path.suffix == ".safetensors":
        save_tensors(path, {"vectors": torch.from_numpy(array)})
        return
    packed = io.BytesIO()
    np.savez(packed, vectors=array)
    write_chunks(path, [packed.getvalue()])


def _counting(found: Iterator[Any], unread: list[int]) -> Iterator[Any]:
    for one in found:
        unread[0] += one.unread > 0
        yield one
