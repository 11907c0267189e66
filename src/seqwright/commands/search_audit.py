"""`seqwright search-audit`: search errors of beam search against exact search."""

from __future__ import annotations

import click

from seqwright.commands.common import DEVICE, JSON, RUN, SET, echo, options_from, print_json, print_table, read_lines


@click.command("search-audit")
@RUN
@click.argument("file", required=False)
@click.option("--beam-sizes", default="1,2,5,10", show_default=True, metavar="K,K,…", help="Beam sizes to compare.")
@click.option("--max-tokens", type=int, default=8, show_default=True, help="Maximum number of tokens, <eos> included.")
@click.option("--max-nodes", type=int, default=20_000, show_default=True, help="Node limit of exact search per line.")
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
    """Count the search errors of beam search on each line of FILE (or standard input), against exact search.

    Exact search takes time exponential in --max-tokens; lines that exceed --max-nodes are excluded and counted.
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.decoding.options import SearchOptions
    from seqwright.reporting.progress import TerminalProgress
    from seqwright.reporting.terminal import Column, table

    if not all(size.strip().isdecimal() and int(size) for size in beam_sizes.split(",")):
        raise UserError(f"--beam-sizes {beam_sizes}: expected comma-separated positive integers, as in 1,2,5,10.")
    # A language model rarely generates <eos> within a few tokens: unfinished hypotheses compete with finished ones.
    flags = {"max_tokens": max_tokens, "max_nodes": max_nodes, "rank_unfinished": "among"}
    options = SearchOptions(**options_from(overrides, "decoding", SearchOptions, flags))
    sizes = [int(size) for size in beam_sizes.split(",")]
    opened = open_run(run, device=device)
    with TerminalProgress(what="exact search", quiet=as_json) as progress:
        audit = opened.search_audit(list(read_lines(file)), options, sizes, progress=progress)
    if as_json:
        print_json(audit.as_json())
        return
    rows = [
        {"width": w.width, "missed": w.missed, "share": w.missed / max(1, audit.proven)}
        | {"unfinished": w.unfinished, "gap": w.gap}
        for w in audit.widths
    ]
    columns = [
        Column("width", "beam size"),
        Column("missed", "search errors"),
        Column("share", "rate", "{:.1%}".format),
        Column("unfinished", "unfinished"),
        Column("gap", "mean gap", "{:.4f}".format),
    ]
    print_table(table(rows, columns))
    echo(
        f"{audit.proven:,} of {audit.sources:,} lines have a proven optimum ({audit.nodes:,} nodes expanded); "
        f"{audit.empty:,} of these optima are empty: model errors, not search errors."
    )
    if any(w.unfinished for w in audit.widths):
        echo("Unfinished: no output of the beam ends in <eos>, the optimum does. The mean gap is over the other lines.")
