"""`seqwright check`."""

from __future__ import annotations

import click

from seqwright.commands.common import JSON, RUN, print_json, print_table


@click.command("check")
@RUN
@JSON
def command(run: str, as_json: bool) -> int:
    """Prove on RUN's own model the laws that every model keeps: cached = uncached, padded = unpadded, …

    Prints the largest difference found for each; exits with 1 if a law is broken.
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.check import check

    findings = check(open_run(run, device="cpu"))
    rows = [{"law": f.law, "difference": f.difference, "tolerance": f.tolerance, "holds": f.holds} for f in findings]
    if as_json:
        print_json({"run": run, "holds": all(f.holds for f in findings), "laws": rows})
    else:
        shown = [row | {"verdict": "holds" if row["holds"] else "BROKEN"} for row in rows]
        columns = [
            Column("law", "law"),
            Column("difference", "difference", "{:.1e}".format),
            Column("tolerance", "tolerance", "{:.0e}".format),
            Column("verdict", ""),
        ]
        print_table(table(shown, columns))
    return 0 if all(f.holds for f in findings) else 1
