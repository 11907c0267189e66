"""`seqwright score`."""

from __future__ import annotations

import math

import click

from seqwright.commands.common import DEVICE, JSON, RUN, lines_waiting, print_json


@click.command("score")
@RUN
@click.argument("file", required=False)
@click.option("--tokens", "by_token", is_flag=True, help="Show the surprisal of each token, in bits.")
@DEVICE
@JSON
def command(run: str, file: str | None, by_token: bool, device: str, as_json: bool) -> None:
    """Log-probability (nats), perplexity and text of each line of FILE or standard input, in order.

    Each line is a document of its own. Those that have come are scored together, without waiting for more.
    """
    from seqwright.api import open as open_run

    opened = open_run(run, device=device)
    for line in (line for lines in lines_waiting(file) for line in opened.score(lines)):
        tokens = opened.tokenizer.tokens(line.ids)
        if as_json:
            print_json(
                {
                    "text": line.text,
                    "log_prob": line.log_prob,
                    "tokens": len(line.ids),
                    "perplexity": line.perplexity,
                    "surprisals": [[t, s] for t, s in zip(tokens, line.surprisals, strict=True)] if by_token else None,
                }
            )
            continue
        perplexity = "" if line.perplexity is None else f"{line.perplexity:.2f}"
        click.echo(f"{line.log_prob:.4f}\t{perplexity}\t{line.text}")
        if by_token:
            bits = (f"{t!r}:{s / math.log(2):.2f}" for t, s in zip(tokens, line.surprisals, strict=True))
            click.echo("\t" + " ".join(bits))
