"""`seqwright score`: per-line log-probability, perplexity and surprisal; filtering by perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from seqwright.commands.common import BACK_OFF, COLUMNS, DEVICE, JSON, RUN, SET, TEXT_OR_FILE, back_off_text, echo
from seqwright.commands.ranked import PROCESSES, RankedCommand, sum_over_ranks
from seqwright.commands.tables import FORMAT, OUT, SKIP_BAD_ROWS, Output, Reading, open_input


@click.command("score", cls=RankedCommand)
@RUN
@TEXT_OR_FILE
@click.option("--keep-below", type=float, metavar="PPL", help="Keep only lines with a perplexity below PPL.")
@click.option("--keep-above", type=float, metavar="PPL", help="Keep only lines with a perplexity above PPL.")
@click.option("--tokens", "by_token", is_flag=True, help="Print the surprisal of each token, in bits.")
@BACK_OFF
@COLUMNS
@FORMAT
@SKIP_BAD_ROWS
@OUT
@SET
@DEVICE
@PROCESSES
@JSON
def command(
    run: str,
    text_or_file: str | None,
    keep_below: float | None,
    keep_above: float | None,
    by_token: bool,
    back_off: bool,
    columns: tuple[str, ...],
    format: str | None,
    skip_bad_rows: bool,
    out: Path | None,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Print log-probability (nats), perplexity and text of a text, or of each line of a file or standard input.

    Each line, or row of a .csv, .tsv or .jsonl file, is a document; rows come back with all of their columns. Standard
    input is scored as it arrives. With --keep-below or --keep-above the matching lines are written unchanged, rows of
    .csv files with the same values (quotes may differ), and the dropped ones are counted at the end.

    \b
    seqwright score runs/notes-ngram new.txt --tokens
    seqwright score runs/notes-ngram new.csv --columns text=body --out scored.csv
    seqwright score runs/notes-ngram big.jsonl --keep-below 200 --out kept.jsonl
    """
    from seqwright.api import open as open_run
    from seqwright.data.column_roles import parse_columns
    from seqwright.data.text_columns import TextColumns

    opened = open_run(run, device=device, set=overrides)
    score = opened.score  # raises here, before any input is read, where the run is no language model
    trained = tuple(getattr(opened.settings.data, "columns", ()))
    wanted = TextColumns(chosen=tuple(parse_columns(columns, ("text",)).values()), trained=trained)
    reading = Reading.of(opened, skip_bad_rows=skip_bad_rows)
    table = open_input(text_or_file, format, wanted, reading)
    filtered = keep_below is not None or keep_above is not None
    bounds = PerplexityFilter(below=math.inf if keep_below is None else keep_below, above=keep_above or 0.0)
    added = ["log_prob", "perplexity", "tokens", *(["surprisals"] * by_token), *(["back_off"] * back_off)]
    output = Output(table, added, out, reading, as_json=as_json, kept=filtered and not as_json)

    def results(rows: list[Any], first: int) -> Iterator[tuple[Any, dict[str, Any] | None, str]]:
        scored = zip(rows, score((row.texts[0] for row in rows), progress=output.progress), strict=True)
        for row, line in bounds.kept(scored) if filtered else scored:
            if filtered and not as_json:
                yield row, None, ""
                continue
            tokens = opened.tokenizer.tokens(line.ids) if by_token else []
            surprisals = list(zip(tokens, line.surprisals.tolist(), strict=True)) if by_token else None
            back_offs = opened.back_off(line.ids.tolist()) if back_off else None
            yield row, _values(line, surprisals, back_offs), _text(line, surprisals, back_offs)

    if by_token and table.format == "text" and not (as_json or filtered):
        units = "log-probability in nats, perplexity per token, text; below, its tokens with their surprisal in bits"
        echo(f"{units}:", err=True)
    output.write(results, source=text_or_file, what="scoring")
    if filtered:
        echo(bounds.summary(), err=True)


def _values(line: Any, surprisals: list[tuple[str, float]] | None, back_offs: list[Any] | None) -> dict[str, Any]:
    """Scores of a line, with those of its tokens if requested."""
    values = {"log_prob": line.log_prob, "perplexity": line.perplexity, "tokens": len(line.ids)}
    values |= {} if surprisals is None else {"surprisals": surprisals}
    return values | ({} if back_offs is None else {"back_off": [asdict(token) for token in back_offs]})


def _text(line: Any, surprisals: list[tuple[str, float]] | None, back_offs: list[Any] | None) -> str:
    """Log-probability, perplexity and text, tab-separated, and further lines about tokens."""
    perplexity = "" if line.perplexity is None else f"{line.perplexity:.2f}"
    parts = [f"{line.log_prob or 0.0:.4f}\t{perplexity}\t{line.text}"]
    if surprisals is not None:
        parts.append("\t" + " ".join(f"{token!r}:{nats / math.log(2):.2f}" for token, nats in surprisals))
    if back_offs is not None:
        parts.append(back_off_text(back_offs))
    return "\n".join(parts)


@dataclass
class PerplexityFilter:
    """Keeps lines whose perplexity is between two bounds and counts the dropped ones."""

    below: float
    above: float
    read: int = 0
    high: int = 0
    low: int = 0
    empty: int = 0

    def kept(self, scored: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Pairs of a row and its score whose perplexity is within the bounds."""
        for row, score in scored:
            self.read += 1
            perplexity = score.perplexity
            if perplexity is None:
                self.empty += 1
            elif perplexity >= self.below:
                self.high += 1
            elif perplexity <= self.above:
                self.low += 1
            else:
                yield row, score

    def summary(self) -> str:
        """One line with the number of kept and dropped lines, of all ranks."""
        read = sum_over_ranks(self.read)
        dropped = {
            f"with a perplexity of {self.below:g} or more": sum_over_ranks(self.high),
            f"with a perplexity of {self.above:g} or less": sum_over_ranks(self.low),
            "without tokens": sum_over_ranks(self.empty),
        }
        kept = read - sum(dropped.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
        return f"kept {kept:,} of {read:,} lines" + (f"; dropped {reasons}." if reasons else ".")
