"""`seqwright generate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from seqwright.commands.common import (
    BACK_OFF,
    DEVICE,
    JSON,
    PRECISION,
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
@click.option("--max-tokens", type=int, help="Maximum number of new tokens.")
@click.option("--temperature", type=float, help="0 is greedy; below 1 is sharper, above 1 flatter.")
@click.option("--top-k", type=int, help="Draw from the k most probable tokens only.")
@click.option("--top-p", type=float, help="Draw from the fewest tokens that hold this share of the probability.")
@click.option("--min-p", type=float, help="Draw from tokens at least this many times as probable as the best one.")
@click.option(
    "--typical-p", type=float, help="Locally typical sampling: keep the most typical tokens that hold this mass."
)
@click.option(
    "--repetition-penalty",
    type=float,
    help="Penalize tokens already in the prompt or output; above 1 discourages repetition.",
)
@click.option("--no-repeat-ngram", type=int, metavar="N", help="Never generate an n-gram of N tokens twice.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated.")
@click.option("--seed", type=int, help="The same seed gives the same text.")
@click.option(
    "--samples", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Continuations, seeds counting up."
)
@click.option(
    "--prompts", metavar="FILE", help="Continue each line of a file (- for standard input) instead of PROMPT."
)
@click.option("--beam", type=click.IntRange(1), metavar="K", help="Search for the most probable text with K beams.")
@click.option("--n-best", type=click.IntRange(1), metavar="N", help="With --beam: the N best, best first.")
@BACK_OFF
@SET
@DEVICE
@PRECISION
@JSON
def command(
    run: str,
    prompt: str,
    max_tokens: int | None,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    typical_p: float | None,
    repetition_penalty: float | None,
    no_repeat_ngram: int | None,
    stop: tuple[str, ...],
    seed: int | None,
    samples: int,
    prompts: str | None,
    beam: int | None,
    n_best: int | None,
    back_off: bool,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Continue PROMPT with the model of RUN, streaming as it goes.

    With --beam nothing is drawn: --set decoding.KEY sets keys of a search (length_penalty, length_alpha, beam_groups, …).

    \b
    seqwright generate runs/notes-gpt "Once upon a time" --max-tokens 300 --temperature 0.8
    seqwright generate runs/notes-gpt --min-p 0.05 --set decoding.presence_penalty=0.5
    seqwright generate runs/notes-gpt "Once upon a time" --beam 8 --n-best 3 --max-tokens 30
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.decoding.options import SearchOptions
    from seqwright.decoding.sampling import SamplingOptions

    drawn: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    drawn |= {
        "typical_p": typical_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": list(stop) or None,
    }
    opened = open_run(run, device=device, precision=precision)
    go_on = opened.generate  # a run that cannot continue text says so before anything is shown
    given = list(read_lines(prompts)) if prompts else [prompt]
    if beam is not None:
        refused = [name for name, value in drawn.items() if value is not None] + ["samples"] * (samples > 1)
        if refused:
            raise UserError(f"--{refused[0].replace('_', '-')} is for drawing, and --beam searches; leave one out.")
        flags = {"beam_size": beam, "n_best": n_best, "max_tokens": max_tokens, "no_repeat_ngram": no_repeat_ngram}
        found = opened.search(given, **options_from(overrides, "decoding", SearchOptions, flags))
        outputs = [({"rank": n + 1}, said) for several in found for n, said in enumerate(several)]
        alone = False
    else:
        if n_best is not None:
            raise UserError("--n-best says how many outputs of a beam to show; give --beam K, or draw --samples N.")
        flags = drawn | {"max_tokens": max_tokens, "no_repeat_ngram": no_repeat_ngram}
        options = options_from(overrides, "decoding", SamplingOptions, flags)
        first = options.get("seed", opened.settings.decoding.seed)
        asked = [(text, first + n) for text in given for n in range(samples)]
        alone = len(asked) == 1 and not as_json
        if alone:
            click.echo(given[0], nl=False)
        texts, seeds = [text for text, _ in asked], [number for _, number in asked]
        listen = (lambda row, text: click.echo(text, nl=False)) if alone else (lambda row, text: None)
        said = go_on(texts, seeds=seeds, listen=listen, **options)
        outputs = [({"seed": number}, one) for number, one in zip(seeds, said, strict=True)]
    for n, (label, one) in enumerate(outputs, 1):
        answers = opened.back_off(one.ids, opened.tokenizer.encode(one.prompt)) if back_off else None
        _show(n, label, one, answers, shown=alone, as_json=as_json)


def _show(n: int, label: dict[str, int], said: Any, answers: Any, *, shown: bool, as_json: bool) -> None:
    """One output, and what is to be said of it; its text may have been shown as it came."""
    from seqwright.decoding.degeneration import watch

    warnings = watch(said.text, log_prob=said.log_prob, tokens=len(said.ids))
    if as_json:
        found = None if answers is None else [asdict(answer) for answer in answers]
        print_json(asdict(said) | label | {"warnings": [flag.as_json() for flag in warnings], "back_off": found})
        return
    ((what, number),) = label.items()
    click.echo("" if shown else f"--- {n} ({what} {number})\n{said.prompt}{said.text}")
    if answers is not None:
        print_back_off(answers)
    if said.unread:
        click.echo(f"the first {said.unread} tokens of the prompt did not fit the context and were not read.", err=True)
    for flag in warnings:
        click.echo(f"output {n} looks degenerate: {flag}.", err=True)
