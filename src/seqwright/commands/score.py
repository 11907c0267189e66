"""`seqwright score`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from seqwright.commands.common import BACK_OFF, DEVICE, JSON, RUN, lines_waiting, print_back_off, print_json
from seqwright.core.config import UserError


@click.command("score")
@RUN
@click.argument("file", required=False)
@click.option("--keep-below", type=float, metavar="PPL", help="Write only lines whose perplexity is below this.")
@click.option("--keep-above", type=float, metavar="PPL", help="Write only lines whose perplexity is above this.")
@click.option("--field", metavar="NAME", help="Lines are JSON objects; score the text under this name.")
@click.option("--tokens", "by_token", is_flag=True, help="Show the surprisal of each token, in bits.")
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
    """Log-probability (nats), perplexity and text of each line of FILE or standard input, in order.

    Each line is a document of its own. Lines come out as they are scored, without waiting for more. With a bound, the
    lines within it are written just as they were read, and what was dropped is counted at the end.

    \b
    seqwright score runs/notes-ngram new.txt --tokens
    seqwright score runs/notes-ngram big.jsonl --field text --keep-below 200 > kept.jsonl
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    scored = _scored(opened, lines_waiting(file), field)
    if keep_below is not None or keep_above is not None:
        sieve = Sieve(below=math.inf if keep_below is None else keep_below, above=keep_above or 0.0)
        scored = sieve.kept(scored)
        if not as_json:
            sys.stdout.writelines(f"{line}\n" for line, _ in scored)
    for _, line in scored:
        tokens = opened.tokenizer.tokens(line.ids)
        answers = opened.back_off(line.ids.tolist()) if back_off else None
        surprisals = list(zip(tokens, line.surprisals.tolist(), strict=True)) if by_token else None
        if as_json:
            facts = {"text": line.text, "log_prob": line.log_prob, "tokens": len(line.ids)}
            found = None if answers is None else [asdict(answer) for answer in answers]
            print_json(facts | {"perplexity": line.perplexity, "surprisals": surprisals, "back_off": found})
            continue
        perplexity = "" if line.perplexity is None else f"{line.perplexity:.2f}"
        click.echo(f"{line.log_prob:.4f}\t{perplexity}\t{line.text}")
        if surprisals is not None:
            click.echo("\t" + " ".join(f"{token!r}:{nats / math.log(2):.2f}" for token, nats in surprisals))
        if answers is not None:
            print_back_off(answers)
    if keep_below is not None or keep_above is not None:
        click.echo(sieve.said(), err=True)


def _scored(opened: Any, groups: Iterable[list[str]], field: str | None) -> Iterator[tuple[str, Any]]:
    """Each line as it was read, and its score."""
    before = 0
    for lines in groups:
        yield from zip(lines, opened.score(_texts(lines, field, before)), strict=True)
        before += len(lines)


def _texts(lines: Iterable[str], field: str | None, before: int) -> Iterator[str]:
    """What is scored of each line; `before` counts the lines before these."""
    if field is None:
        yield from lines
        return
    for number, line in enumerate(lines, before + 1):
        try:
            text = json.loads(line)[field]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise UserError(
                f"line {number:,} is no JSON object with text under '{field}': {line[:60]!r}."
                " Mend the line, or name another --field."
            )
        yield text


@dataclass
class Sieve:
    """Lets lines through whose perplexity is within bounds, and counts the others."""

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

    def said(self) -> str:
        """What became of the lines."""
        dropped = {
            f"with a perplexity of {self.below:g} or more": self.high,
            f"with one of {self.above:g} or less": self.low,
            "without tokens": self.empty,
        }
        kept = self.read - sum(dropped.values())
        reasons = ", ".join(f"{many:,} {why}" for why, many in dropped.items() if many)
        return f"kept {kept:,} of {self.read:,} lines" + (f"; dropped {reasons}." if reasons else ".")
