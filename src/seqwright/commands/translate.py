"""`seqwright translate`: sequence-to-sequence decoding of source lines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import (
    COLUMNS,
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    TEXT_OR_FILE,
    echo,
    search_options_from,
    split_data_overrides,
)
from seqwright.commands.ranked import PROCESSES, RankedCommand, gathered, sum_over_ranks
from seqwright.commands.tables import FORMAT, OUT, SKIP_BAD_ROWS, Output, Reading, open_input
from seqwright.core.printable import quantity


@click.command("translate", cls=RankedCommand)
@RUN
@TEXT_OR_FILE
@click.option("--beam", type=click.IntRange(1), metavar="K", help="Beam search with beam size K.")
@click.option(
    "--n-best",
    type=click.IntRange(1),
    metavar="N",
    help="The N best translations of a beam search: `line ||| text ||| log-probability ||| score`.",
)
@click.option(
    "--tag", metavar="<NAME>", help="Special token prepended to the source, such as a target language: --tag '<de>'."
)
@click.option("--truncate", is_flag=True, help="Truncate sources that exceed the context of the model, with a warning.")
@click.option(
    "--attention", is_flag=True, help="Append the attention alignment: `text ||| source-target …`, in token positions."
)
@COLUMNS
@FORMAT
@SKIP_BAD_ROWS
@OUT
@SET
@DEVICE
@PRECISION
@PROCESSES
@JSON
def command(
    run: str,
    text_or_file: str | None,
    beam: int | None,
    n_best: int | None,
    tag: str | None,
    truncate: bool,
    attention: bool,
    columns: tuple[str, ...],
    format: str | None,
    skip_bad_rows: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Translate a text, or each line of a file or standard input, in order: one line in, one line out.

    A .csv, .tsv or .jsonl file comes back with all of its columns and a translation. Multi-source models take the
    sources of a line separated by tabs. Standard input is translated as it arrives. With --json --attention all
    attention weights are printed.

    \b
    seqwright translate runs/en-de test.en > test.out
    seqwright translate runs/en-de news.csv --columns source=headline --out news-de.csv
    seqwright translate runs/en-de "Two dogs run." --beam 8 --n-best 5
    seqwright translate runs/en-de test.en --set 'decoding.required=["Hunde"]' --set 'decoding.forbidden=["laufen"]'
    """
    from seqwright.api import open as open_run
    from seqwright.data.column_roles import parse_columns
    from seqwright.data.headers import SOURCE_NAMES
    from seqwright.data.text_columns import TextColumns

    data_overrides, others = split_data_overrides(overrides)
    opened = open_run(run, device=device, precision=precision, set=data_overrides)
    translate = opened.translate  # raises here, before any input is read, where the run is no translator
    options = search_options_from(others, opened.settings.decoding, {"beam_size": beam, "n_best": n_best})
    options |= {"tag": tag, "truncate": truncate, "attention": attention}
    roles = tuple(f"source{n or ''}" for n in (0, *range(2, 1 + getattr(opened.settings.data, "sources", 1))))
    trained = opened.settings.data.columns if opened.settings.data.kind == "pairs" else None
    wanted = TextColumns(
        roles=roles,
        chosen=tuple(parse_columns(columns, roles).values()),
        trained=() if trained is None else (str(trained[0]),),
        names=SOURCE_NAMES,
    )
    reading = Reading.of(opened, skip_bad_rows=skip_bad_rows)
    table = open_input(text_or_file, format, wanted, reading)
    decoding = asdict(opened.settings.decoding) | options
    several = decoding["n_best"] > 1 and decoding["mbr"] == "none"
    added = ["translation", "log_prob", *(["others"] * several), *(["alignment"] * attention)]
    output = Output(table, added, out, reading, as_json=as_json)
    truncated = 0
    degenerate = DegenerateLines(one_by_one=text_or_file in (None, "-") and sys.stdin.isatty())

    def results(rows: list[Any], first: int) -> Iterator[tuple[Any, dict[str, Any], str]]:
        nonlocal truncated
        sources = [row.texts for row in rows]
        if first == 1 and (reason := opened.codec.sides.swapped([text for texts in sources for text in texts])):
            echo(f"the sources look like targets: {reason}.", err=True)
        translations = translate(sources, first=first, **options)
        for number, (row, translation) in enumerate(zip(rows, translations, strict=True), first):
            truncated += translation.unread > 0
            degenerate.add(number, translation.warnings)
            text = _n_best_list(number, translation) if several else _text(translation, attention)
            yield row, _values(translation, flat=output.writer.format != "jsonl"), text

    output.write(results, source=text_or_file, what="translating")
    if summary := degenerate.summary():
        echo(summary, err=True)
    if truncated := sum_over_ranks(truncated):
        echo(f"truncated to the context of the model: {quantity(truncated, 'source')}.", err=True)


@dataclass
class DegenerateLines:
    """Counts the lines whose outputs look degenerate; one line says how many, and why the first one does."""

    one_by_one: bool
    """Whether each is printed at once, as to someone who types lines."""
    lines: int = 0
    flagged: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    first: tuple[int, str] | None = None

    def add(self, number: int, flags: Sequence[Any]) -> None:
        """Counts the line of this number, by the kinds of its flags."""
        self.lines += 1
        self.kinds.update({flag.kind for flag in flags})
        if flags and self.one_by_one:
            echo(f"it looks degenerate: {flags[0]}.", err=True)
        elif flags:
            self.flagged += 1
            self.first = self.first or (number, str(flags[0]))

    def summary(self) -> str:
        """One line for the user, of all ranks; empty where there is nothing to say."""
        lines, flagged = sum_over_ranks(self.lines), sum_over_ranks(self.flagged)
        kinds = sum(map(Counter, gathered(self.kinds)), Counter[str]())
        first = min(filter(None, gathered(self.first)), default=None)
        if first is None:
            return ""
        place = f"line {first[0]:,}" if lines > 1 else "the output"
        if flagged == 1:
            return f"{place} looks degenerate: {first[1]}."
        counts = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
        return (
            f"{flagged:,} of {lines:,} lines look degenerate ({counts}), the first at {place}: {first[1]}; --json has"
            " the reasons of each."
        )


def _text(translation: Any, attention: bool) -> str:
    """The translation on one line, with its alignment if requested."""
    text = translation.text.replace("\n", " ")
    links = translation.attention.links if translation.attention else ""
    return f"{text} ||| {links}".rstrip() if attention else text


def _n_best_list(number: int, translation: Any) -> str:
    """All outputs for a source, best score first, in the n-best format of Moses: `line ||| text ||| log-probability |||
    score`."""
    return "\n".join(
        f"{number} ||| {one.text.replace(chr(10), ' ')} ||| {one.log_prob:.4f} ||| {one.score:.4f}"
        for one in (translation, *translation.others)
    )


def _values(translation: Any, *, flat: bool) -> dict[str, Any]:
    """The translation and what is known about it; `flat` values are cells of a table."""
    others = [asdict(other) for other in translation.others]
    empty = translation.reason == "empty"  # nothing was translated, at no probability
    values = {
        "translation": translation.text,
        "log_prob": None if empty else translation.log_prob,
        "others": others,
    }
    if flat:
        return values | {"alignment": translation.attention.links if translation.attention else ""}
    return values | {
        "score": None if empty else translation.score,
        "reason": translation.reason,
        "unread": translation.unread,
        "warnings": [flag.as_json() for flag in translation.warnings],
        **({} if translation.attention is None else {"attention": asdict(translation.attention)}),
    }
