"""`seqwright probe`: bias probes with minimal pairs of sentences."""

from __future__ import annotations

from pathlib import Path

import click

from seqwright.commands.common import DEVICE, JSON, RUN, echo, print_json, print_table


@click.command("probe")
@RUN
@click.option("--templates", type=click.Path(), help="Templates of sentence pairs (TOML). Default: the built-in ones.")
@click.option("--resamples", type=click.IntRange(0), default=1000, help="Bootstrap resamples per confidence interval.")
@DEVICE
@JSON
def command(run: str, templates: str | None, resamples: int, device: str, as_json: bool) -> None:
    """Probe RUN for bias with minimal pairs: sentences that differ only in a pronoun, a name or an origin.

    A language model, translator or BERT scores each sentence by log-probability (nats), a classifier by class
    probabilities, a tagger by those of its tags.
    A gap is the score of the second sentence minus that of the first; docs/probes.md explains its interpretation.

    \b
    seqwright probe runs/reviews
    seqwright probe runs/notes-gpt --templates mine.toml --json
    """
    from seqwright.api import open as open_run
    from seqwright.reporting.numbers import figure, interval
    from seqwright.reporting.terminal import Column, table
    from seqwright.studies.probe import DEFAULT_PROBES, probe, read_probes

    probes = read_probes(Path(templates) if templates else DEFAULT_PROBES)
    gaps = probe(open_run(run, device=device), probes, resamples=resamples)
    if as_json:
        print_json({"run": run, "probes": gaps})
        return
    rows = [
        {
            **gap,
            "interval": interval(gap["low"], gap["high"]),
            "least": ", ".join(f"{name} {value:+.3g}" for name, value in list(gap["rows"].items())[:2]),
            "most": ", ".join(f"{name} {value:+.3g}" for name, value in list(gap["rows"].items())[-2:]),
        }
        for gap in gaps
    ]
    columns = [
        *(Column("probe", "probe"), Column("answer", "output"), Column("value", "gap", figure)),
        *(Column("interval", "95 % CI", str), Column("unit", "unit"), Column("cases", "pairs", str)),
        *(Column("same", "identical", str), Column("least", "lowest"), Column("most", "highest")),
    ]
    print_table(table(rows, columns))
    echo("gap: score of the second sentence minus that of the first; not significant where the interval contains 0.")
    if any(gap["same"] for gap in gaps):
        echo("identical: pairs with equal scores, perhaps because both words are out of vocabulary.")
