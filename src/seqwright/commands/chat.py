"""`seqwright chat`."""

from __future__ import annotations

import sys
from typing import Any

import click

from seqwright.commands.common import DEVICE, JSON, PRECISION, RUN, SET, options_from, print_json, read_lines


@click.command("chat")
@RUN
@click.option("--system", metavar="TEXT", help="What the assistant is told before the conversation.")
@click.option("--max-tokens", type=int, help="Maximum number of tokens of a reply.")
@click.option("--temperature", type=float, help="0 is greedy; below 1 is sharper, above 1 flatter.")
@click.option("--seed", type=int, help="The same seed gives the same answers.")
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Talk with the assistant of RUN, a line a turn; /new begins again, /quit (or the end of input) ends.

    \b
    seqwright chat runs/helper
    echo "What is a list?" | seqwright chat runs/helper --json
    """
    from seqwright.api import open as open_run
    from seqwright.decoding.sampling import SamplingOptions

    flags = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    options = options_from(overrides, "decoding", SamplingOptions, flags)
    opened = open_run(run, device=device, precision=precision)
    answer = opened.chat  # a run that cannot chat says so before anything is asked
    begun = [{"role": "system", "content": system}] if system else []
    talk: list[dict[str, str]] = list(begun)
    for line in _asked():
        if line.strip() == "/quit":
            break
        if line.strip() == "/new":
            talk = list(begun)
            continue
        if not line.strip():
            continue
        talk.append({"role": "user", "content": line})
        said = answer(talk, listen=_nothing if as_json else _show, **options)
        talk.append({"role": "assistant", "content": said.content})
        if as_json:
            print_json({"role": "assistant"} | _fields(said))
        else:
            click.echo()
            if said.forgotten:
                click.echo(f"({said.forgotten} messages at the beginning no longer fit and were not read.)", err=True)
            if said.unread:
                click.echo(f"(the first {said.unread} tokens of what you said do not fit and were not read.)", err=True)


def _asked() -> Any:
    """Lines as they are typed, behind a prompt where a person sits there."""
    if not sys.stdin.isatty():
        yield from read_lines(None)
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            click.echo()
            return


def _show(text: str) -> None:
    click.echo(text, nl=False)


def _nothing(text: str) -> None: ...


def _fields(said: Any) -> dict[str, Any]:
    return {"content": said.content, "reason": said.reason, "forgotten": said.forgotten, "unread": said.unread}
