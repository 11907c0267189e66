"""`seqwright search-audit`."""

from __future__ import annotations

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, options_from, print_json, print_table, read_lines


@click.command("search-audit")
@RUN
@click.argument("file", required=False)
@click.option("--beam-sizes", default="1,2,5,10", show_default=True, metavar="K,K,…", help="Beam sizes to try.")
@click.option("--max-tokens", type=int, default=8, show_default=True, help="Maximum number of tokens, <eos> included.")
@click.option(
    "--max-nodes", type=int, default=20_000, show_default=True, help="Prefixes after which a proof is given up."
)
@SET
@DEVICE
@JSON
def command(
    run: str,
    file: str | None,
    beam_sizes: str,
    max_tokens: int,
    max_nodes: int,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """How often a beam misses the best continuation of each line of FILE (or standard input): model or search error.

    The exact search takes time that grows quickly with --max-tokens; lines it cannot finish are counted, not guessed.
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.decoding.options import SearchOptions
    from seqwright.reporting.terminal import Column, table

    if not all(size.strip().isdecimal() and int(size) for size in beam_sizes.split(",")):
        raise UserError(f"--beam-sizes {beam_sizes}: expected whole numbers with commas between, as in 1,2,5,10.")
    # A language model seldom ends within a few tokens: what is cut off competes.
    flags = {"max_tokens": max_tokens, "max_nodes": max_nodes, "rank_unfinished": "among"}
    options = SearchOptions(**options_from(overrides, "decoding", SearchOptions, flags))
    found = open_run(run, device=device).search_audit(
        list(read_lines(file)), options, [int(size) for size in beam_sizes.split(",")]
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
