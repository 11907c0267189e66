"""`seqwright score`: per-line log-probability, perplexity and surprisal; filtering by perplexity."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from seqwright.commands.common import BACK_OFF, DEVICE, JSON, RUN, echo, line_chunks, print_back_off, print_json
from seqwright.core.config import UserError
from seqwright.core.printable import printable


@click.command("score")
@RUN
@click.argument("file", required=False)
@click.option("--keep-below", type=float, metavar="PPL", help="Keep only lines with a perplexity below PPL.")
@click.option("--keep-above", type=float, metavar="PPL", help="Keep only lines with a perplexity above PPL.")
@click.option("--field", metavar="NAME", help="Lines are JSON objects; score the text under this key.")
@click.option("--tokens", "by_token", is_flag=True, help="Print the surprisal of each token, in bits.")
@BACK_OFF
@DEVICE
@JSON
def command(
    run: str,
    file: str | None,
    keep_below: float | None,
    keep_above: float | None,
    field: str | None,
    by_token: bool,
    back_off: bool,
    device: str,
    as_json: bool,
) -> None:
    """Print log-probability (nats), perplexity and text of each line of FILE or standard input, in order.

    Each line is a document. Standard input is scored as it arrives. With --keep-below or --keep-above the matching
    lines are written unchanged, and the dropped ones are counted at the end.

    \b
    seqwright score runs/notes-ngram new.txt --tokens
    seqwright score runs/notes-ngram big.jsonl --field text --keep-below 200 > kept.jsonl
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    scored = _scored(opened, line_chunks(file), field)
    if keep_below is not None or keep_above is not None:
        perplexity_filter = PerplexityFilter(
            below=math.inf if keep_below is None else keep_below, above=keep_above or 0.0
        )
        scored = perplexity_filter.kept(scored)
        if not as_json:
            lines = (line for line, _ in scored)
            sys.stdout.writelines(f"{line}\n" for line in (map(printable, lines) if sys.stdout.isatty() else lines))
    for _, line in scored:
        tokens = opened.tokenizer.tokens(line.ids)
        back_off_tokens = opened.back_off(line.ids.tolist()) if back_off else None
        surprisals = list(zip(tokens, line.surprisals.tolist(), strict=True)) if by_token else None
        if as_json:
            facts = {"text": line.text, "log_prob": line.log_prob, "tokens": len(line.ids)}
            back_offs = None if back_off_tokens is None else [asdict(token) for token in back_off_tokens]
            print_json(facts | {"perplexity": line.perplexity, "surprisals": surprisals, "back_off": back_offs})
            continue
        perplexity = "" if line.perplexity is None else f"{line.perplexity:.2f}"
        echo(f"{line.log_prob:.4f}\t{perplexity}\t{line.text}")
        if surprisals is not None:
            echo("\t" + " ".join(f"{token!r}:{nats / math.log(2):.2f}" for token, nats in surprisals))
        if back_off_tokens is not None:
            print_back_off(back_off_tokens)
    if keep_below is not None or keep_above is not None:
        echo(perplexity_filter.summary(), err=True)


def _scored(opened: Any, chunks: Iterable[list[str]], field: str | None) -> Iterator[tuple[str, Any]]:
    """Pairs of input line and its score."""
    offset = 0
    for lines in chunks:
        yield from zip(lines, opened.score(_texts(lines, field, offset)), strict=True)
        offset += len(lines)


def _texts(lines: Iterable[str], field: str | None, offset: int) -> Iterator[str]:
    """The text of each line, or the value of `field` in its JSON object; `offset` lines came before these."""
    if field is None:
        yield from lines
        return
    for number, line in enumerate(lines, offset + 1):
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise UserError(
                f"line {number:,} is not a JSON object with text under '{field}': {line[:60]!r}."
                " Fix the line, or name another --field."
            )
        yield text


@dataclass
class PerplexityFilter:
    """Keeps lines whose perplexity is between two bounds and counts the dropped ones."""

    below: float
    above: float
    read: int = 0
    high: int = 0
    low: int = 0
    empty: int = 0

    def kept(self, scored: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        for line, score in scored:
            self.read += 1
            perplexity = score.perplexity
            if perplexity is None:
                self.empty += 1
            elif perplexity >= self.below:
                self.high += 1
            elif perplexity <= self.above:
                self.low += 1
            else:
                yield line, score

    def summary(self) -> str:
        """One line with the number of kept and dropped lines."""
        dropped = {
            f"with a perplexity of {self.below:g} or more": self.high,
            f"with a perplexity of {self.above:g} or less": self.low,
            "without tokens": self.empty,
        }
        kept = self.read - sum(dropped.values())
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
        return f"kept {kept:,} of {self.read:,} lines" + (f"; dropped {reasons}." if reasons else ".")
