"""`seqwright check`: the invariants of a trained model, measured."""

from __future__ import annotations

import click

from seqwright.commands.common import JSON, RUN, print_json, print_table


@click.command("check")
@RUN
@click.option("--accept", is_flag=True, help="First accept files that you changed: write a new manifest of RUN.")
@click.option("--save", is_flag=True, help="Store results, hashes and versions in RUN and its report.")
@JSON
def command(run: str, accept: bool, save: bool, as_json: bool) -> int:
    """Check the laws that every model obeys on the model of RUN: cached = uncached, padded = unpadded, …

    Prints the largest absolute difference per law; exits with status 1 if one exceeds its tolerance.
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.terminal import Column, table
    from seqwright.runs.directory import RunDirectory
    from seqwright.studies.check import certify, check

    if accept:
        RunDirectory.accept(run)
    opened = open_run(run, device="cpu")
    results = check(opened)
    if save:
        certify(opened, results)
    rows = [{"law": f.law, "difference": f.difference, "tolerance": f.tolerance, "holds": f.holds} for f in results]
    if as_json:
        print_json({"run": run, "holds": all(f.holds for f in results), "laws": rows})
    else:
        table_rows = [row | {"verdict": "holds" if row["holds"] else "BROKEN"} for row in rows]
        columns = [
            Column("law", "law"),
            Column("difference", "difference", "{:.1e}".format),
            Column("tolerance", "tolerance", "{:.0e}".format),
            Column("verdict", ""),
        ]
        print_table(table(table_rows, columns))
    return 0 if all(f.holds for f in results) else 1
