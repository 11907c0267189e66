"""`seqwright search-audit`."""

from __future__ import annotations

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, options_from, print_json, print_table, read_lines


@click.command("search-audit")
@RUN
@click.argument("file", required=False)
@click.option("--widths", default="1,2,5,10", show_default=True, metavar="K,K,…", help="Beams to try.")
@click.option("--length", type=int, default=8, show_default=True, help="The most tokens said, the end included.")
@click.option("--nodes", type=int, default=20_000, show_default=True, help="Prefixes after which a proof is given up.")
@SET
@DEVICE
@JSON
def command(
    run: str,
    file: str | None,
    widths: str,
    length: int,
    nodes: int,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """How often a beam misses the best continuation of each line of FILE (or standard input): model or search error.

    The exact search takes time that grows quickly with --length; lines it cannot finish are counted, not guessed.
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.decoding.options import SearchOptions
    from seqwright.reporting.terminal import Column, table

    if not all(width.strip().isdecimal() and int(width) for width in widths.split(",")):
        raise UserError(f"--widths {widths}: expected whole numbers with commas between, as in 1,2,5,10.")
    # A language model seldom ends within a few tokens: what is cut off competes.
    flags = {"length": length, "nodes": nodes, "unended": "among"}
    options = SearchOptions(**options_from(overrides, "decoding", SearchOptions, flags))
    found = open_run(run, device=device).search_audit(
        list(read_lines(file)), options, [int(width) for width in widths.split(",")]
    )
    if as_json:
        print_json(found.as_json())
        return
    rows = [
        {"width": w.width, "missed": w.missed, "share": w.missed / max(1, found.proven), "gap": w.gap}
        for w in found.widths
    ]
    columns = [
        Column("width", "beam"),
        Column("missed", "missed the best"),
        Column("share", "share", "{:.1%}".format),
        Column("gap", "mean gap", "{:.4f}".format),
    ]
    print_table(table(rows, columns))
    click.echo(
        f"{found.proven:,} of {found.sources:,} lines have a proven best ({found.nodes:,} prefixes looked at); "
        f"{found.empty:,} of these are empty: errors of the model, not of the search."
    )
