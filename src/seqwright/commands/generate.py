"""`seqwright generate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from seqwright.commands.common import (
    BACK_OFF,
    DEVICE,
    JSON,
    RUN,
    SET,
    options_from,
    print_back_off,
    print_json,
    read_lines,
)


@click.command("generate")
@RUN
@click.argument("prompt", default="")
@click.option("--tokens", type=int, help="The most tokens said.")
@click.option("--temperature", type=float, help="0 is greedy; below 1 is sharper, above 1 flatter.")
@click.option("--top-k", type=int, help="Draw from the k most probable tokens only.")
@click.option("--top-p", type=float, help="Draw from the fewest tokens that hold this share of the probability.")
@click.option("--min-p", type=float, help="Draw from tokens at least this many times as probable as the best one.")
@click.option("--typical", type=float, help="Draw from the most typical tokens that hold this share.")
@click.option("--repetition-penalty", type=float, help="Above 1: say again less gladly what was said.")
@click.option("--no-repeat", type=int, metavar="N", help="Never say an n-gram of N tokens twice.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--seed", type=int, help="The same seed gives the same text.")
@click.option(
    "--samples", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Continuations, seeds counting up."
)
@click.option(
    "--prompts", metavar="FILE", help="Continue each line of a file (- for standard input) instead of PROMPT."
)
@BACK_OFF
@SET
@DEVICE
@JSON
def command(
    run: str,
    prompt: str,
    tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    typical: float | None,
    repetition_penalty: float | None,
    no_repeat: int | None,
    stop: tuple[str, ...],
    seed: int | None,
    samples: int,
    prompts: str | None,
    back_off: bool,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> None:
    """Continue PROMPT with the model of RUN, streaming as it goes.

    \b
    seqwright generate runs/notes-gpt "Once upon a time" --tokens 300 --temperature 0.8
    seqwright generate runs/notes-gpt --min-p 0.05 --set decoding.presence_penalty=0.5
    """
    from seqwright.api import open as open_run
    from seqwright.decoding.sampling import SamplingOptions
    from seqwright.decoding.watch import watch

    flags: dict[str, Any] = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    flags |= {"min_p": min_p, "typical": typical, "repetition_penalty": repetition_penalty, "no_repeat": no_repeat}
    options = options_from(overrides, "decoding", SamplingOptions, flags | {"stop": list(stop) or None})
    opened = open_run(run, device=device)
    go_on = opened.generate  # a run that cannot continue text says so before anything is shown
    given = list(read_lines(prompts)) if prompts else [prompt]
    first = options.get("seed", opened.settings.decoding.seed)
    asked = [(text, first + n) for text in given for n in range(samples)]
    alone = len(asked) == 1 and not as_json
    if alone:
        click.echo(given[0], nl=False)
    continuations = go_on(
        [text for text, _ in asked],
        seeds=[number for _, number in asked],
        listen=(lambda row, text: click.echo(text, nl=False)) if alone else (lambda row, text: None),
        **options,
    )
    for n, said in enumerate(continuations):
        warnings = watch(said.text, log_prob=said.log_prob, tokens=len(said.ids))
        answers = opened.back_off(said.ids, opened.tokenizer.encode(said.prompt)) if back_off else None
        if as_json:
            found = None if answers is None else [asdict(answer) for answer in answers]
            warned = [flag.as_json() for flag in warnings]
            print_json(asdict(said) | {"seed": asked[n][1], "warnings": warned, "back_off": found})
        elif alone:
            click.echo()
        else:
            click.echo(f"--- {n + 1} (seed {asked[n][1]})\n{said.prompt}{said.text}")
        if answers is not None and not as_json:
            print_back_off(answers)
        if said.unread and not as_json:
            click.echo(
                f"the first {said.unread} tokens of the prompt did not fit the context and were not read.", err=True
            )
        for flag in warnings if not as_json else ():
            click.echo(f"output {n + 1} looks degenerate: {flag}.", err=True)
