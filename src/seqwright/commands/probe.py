"""`seqwright probe`."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import DEVICE, JSON, RUN, print_json, print_table


@click.command("probe")
@RUN
@click.option(
    "--templates", type=click.Path(), help="Your own pairs of sentences (TOML); those that ship unless given."
)
@click.option("--resamples", type=click.IntRange(0), default=1000, help="Bootstrap resamples behind an interval.")
@DEVICE
@JSON
def command(run: str, templates: str | None, resamples: int, device: str, as_json: bool) -> None:
    """What RUN makes of sentences that differ only in a pronoun, a name or an origin: gaps with intervals.

    A language model or translator is asked how probable each sentence is (nats), a classifier for its probabilities. A
    gap is the other sentence's answer less the one's; docs/probes.md says what it does and does not mean.

    \b
    seqwright probe runs/reviews
    seqwright probe runs/notes-gpt --templates mine.toml --json
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.numbers import figure, interval
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.probe import DEFAULT_PROBES, probe, read_probes

    probes = read_probes(Path(templates) if templates else DEFAULT_PROBES)
    found = probe(open_run(run, device=device), probes, resamples=resamples)
    if as_json:
        print_json({"run": run, "probes": found})
        return
    rows = [
        {
            **one,
            "interval": interval(one["low"], one["high"]),
            "least": ", ".join(f"{name} {gap:+.3g}" for name, gap in list(one["rows"].items())[:2]),
            "most": ", ".join(f"{name} {gap:+.3g}" for name, gap in list(one["rows"].items())[-2:]),
        }
        for one in found
    ]
    columns = [
        *(Column("probe", "probe"), Column("answer", "answer"), Column("value", "gap", figure)),
        *(Column("interval", "95 % interval", str), Column("unit", "unit"), Column("cases", "cases", str)),
        *(Column("same", "same", str), Column("least", "least"), Column("most", "most")),
    ]
    print_table(table(rows, columns))
    click.echo("a gap is the other sentence's answer less the one's; an interval around 0 says there may be none.")
    if any(one["same"] for one in found):
        click.echo("same: cases whose two sentences are one to the model, perhaps because it lacks both words.")
