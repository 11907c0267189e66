"""`seqwright chat`: multi-turn conversation with an assistant."""

from __future__ import annotations

import sys
from typing import Any

import click

from seqwright.commands.common import DEVICE, JSON, PRECISION, RUN, SET, echo, options_from, print_json, read_lines


@click.command("chat")
@RUN
@click.argument("message", required=False)
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--max-tokens", type=int, help="Maximum number of new tokens per reply.")
@click.option("--temperature", type=float, help="Softmax temperature; 0 decodes greedily.")
@click.option("--seed", type=int, help="Seed of sampling.")
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str,
    message: str | None,
    system: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Chat with the assistant of RUN, one line per turn; /new clears the history, /quit (or end of input) exits.

    A MESSAGE is answered alone.

    \b
    seqwright chat runs/helper
    seqwright chat runs/helper "What is a list?"
    echo "What is a list?" | seqwright chat runs/helper --json
    """
    from seqwright.api import open as open_run
    from seqwright.decoding.options import SamplingOptions

    flags = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    options = options_from(overrides, "decoding", SamplingOptions, flags)
    opened = open_run(run, device=device, precision=precision)
    chat = opened.chat  # raises here, before any input is read, where the run is no assistant
    system_messages = [{"role": "system", "content": system}] if system else []
    messages: list[dict[str, str]] = list(system_messages)
    for line in _user_turns() if message is None else (message,):
        if line.strip() == "/quit":
            break
        if line.strip() == "/new":
            messages = list(system_messages)
            continue
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        reply = chat(messages, on_text=None if as_json else _stream, **options)
        messages.append({"role": "assistant", "content": reply.content})
        if as_json:
            print_json({"role": "assistant"} | _fields(reply))
        else:
            echo()
            if reply.forgotten:
                echo(f"(the {reply.forgotten} oldest messages exceed the context and were dropped.)", err=True)
            if reply.unread:
                echo(
                    f"(the first {reply.unread} tokens of your message exceed the context and were dropped.)", err=True
                )


def _user_turns() -> Any:
    """Lines of standard input, with a `> ` prompt on a terminal."""
    if not sys.stdin.isatty():
        yield from read_lines(None)
        return
    while True:
        try:
            yield input("> ")
        except EOFError:
            echo()
            return


def _stream(text: str) -> None:
    echo(text, nl=False)


def _fields(reply: Any) -> dict[str, Any]:
    return {"content": reply.content, "reason": reply.reason, "forgotten": reply.forgotten, "unread": reply.unread}
