"""`seqwright generate`: sampling and beam search from a language model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import click

from seqwright.commands.common import (
    BACK_OFF,
    DEVICE,
    JSON,
    PRECISION,
    RUN,
    SET,
    back_off_text,
    echo,
    note_file_names,
    options_from,
    piped,
    print_json,
    read_lines,
    search_options_from,
)
from seqwright.commands.ranked import (
    PROCESSES,
    RankedCommand,
    captured,
    command_ranks,
    in_rank_order,
    rank_part,
    sum_over_ranks,
    together,
)


@click.command("generate", cls=RankedCommand)
@RUN
@click.argument("prompt", default="")
@click.option("--max-tokens", type=int, help="Maximum number of new tokens.")
@click.option("--temperature", type=float, help="Softmax temperature; 0 decodes greedily.")
@click.option("--top-k", type=int, help="Sample from the k most probable tokens only.")
@click.option("--top-p", type=float, help="Nucleus sampling: smallest set of tokens with this probability mass.")
@click.option("--min-p", type=float, help="Sample from tokens with at least this fraction of the highest probability.")
@click.option(
    "--typical-p", type=float, help="Locally typical sampling: most typical tokens with this probability mass."
)
@click.option(
    "--repetition-penalty",
    type=float,
    help="Penalize tokens already in the prompt or output; above 1 discourages repetition.",
)
@click.option("--no-repeat-ngram", type=int, metavar="N", help="Never generate an n-gram of N tokens twice.")
@click.option("--stop", multiple=True, metavar="TEXT", help="Stop string, not included in the output; may be repeated.")
@click.option("--seed", type=int, help="Seed of sampling.")
@click.option(
    "--samples",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Samples per prompt, with consecutive seeds.",
)
@click.option(
    "--prompts", metavar="FILE", help="File with one prompt per line (- for standard input), instead of PROMPT."
)
@click.option("--beam", type=click.IntRange(1), metavar="K", help="Beam search with beam size K instead of sampling.")
@click.option("--n-best", type=click.IntRange(1), metavar="N", help="Print the N best hypotheses of a beam search.")
@click.option(
    "--draft",
    metavar="RUN",
    help="Speculative decoding, with the same output: RUN (an n-gram, say) proposes tokens; `lookup` proposes what"
    " followed the last few tokens before.",
)
@BACK_OFF
@SET
@DEVICE
@PRECISION
@PROCESSES
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
    draft: str | None,
    back_off: bool,
    overrides: tuple[str, ...],
    device: str,
    precision: str,
    as_json: bool,
) -> None:
    """Generate a continuation of PROMPT with the model of RUN; a single sample is streamed.

    With --beam, --set decoding.KEY takes the keys of beam search (length_penalty, length_alpha, beam_groups, …).

    \b
    seqwright generate runs/notes-gpt "Once upon a time" --max-tokens 300 --temperature 0.8
    seqwright generate runs/notes-gpt --min-p 0.05 --set decoding.presence_penalty=0.5
    seqwright generate runs/notes-gpt "Once upon a time" --beam 8 --n-best 3 --max-tokens 30
    seqwright generate runs/notes-gpt "Once upon a time" --draft runs/notes-ngram
    """
    from seqwright.api import open as open_run
    from seqwright.core.config import UserError
    from seqwright.decoding.options import SamplingOptions, SearchOptions

    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    sampling |= {
        "typical_p": typical_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": list(stop) or None,
    }
    opened = open_run(run, device=device, precision=precision)
    generate = opened.generate  # raises here, before anything is printed, where the run is no language model
    if back_off:
        opened.back_off([])  # refused before anything is printed where the model does not back off
    ranks = command_ranks()
    if ranks is not None and (prompts == "-" or (not prompts and samples == 1)):
        raise click.UsageError("several processes share prompts or samples; give --prompts FILE or --samples N.")
    note_file_names([] if prompts else [prompt], "--prompts")
    if not prompts and not prompt and piped():
        echo(
            "standard input is not read; give the prompt as an argument, or --prompts - for a prompt a line.", err=True
        )
    prompt_texts = list(read_lines(prompts)) if prompts else [prompt]
    proposer: Any = None
    if beam is not None or n_best is not None:
        refused = [name for name, value in (sampling | {"draft": draft}).items() if value is not None]
        refused += ["samples"] * (samples > 1)
        if refused:
            raise UserError(
                f"--{refused[0].replace('_', '-')} is for sampling, not for beam search; leave it or"
                f" {'--n-best' if beam is None else '--beam'} out."
            )
        flags = {"beam_size": beam, "n_best": n_best, "max_tokens": max_tokens, "no_repeat_ngram": no_repeat_ngram}
        mine = rank_part(prompt_texts, ranks)
        options = search_options_from(overrides, SearchOptions(), flags)
        n_best_lists = together(ranks, lambda: opened.search(mine, **options) if mine else [])
        outputs = [({"rank": n + 1}, output) for hypotheses in n_best_lists for n, output in enumerate(hypotheses)]
        streaming = False
    else:
        flags = sampling | {"max_tokens": max_tokens, "no_repeat_ngram": no_repeat_ngram}
        options = options_from(overrides, "decoding", SamplingOptions, flags)
        if draft is not None:
            proposer = opened.draft(None if draft == "lookup" else open_run(draft, device="cpu"))
        first_seed = options.get("seed", opened.settings.decoding.seed)
        requests = [(text, first_seed + n) for text in prompt_texts for n in range(samples)]
        streaming = ranks is None and len(requests) == 1 and not as_json
        requests = rank_part(requests, ranks)
        if streaming:
            echo(prompt_texts[0], nl=False)
        texts, seeds = [text for text, _ in requests], [number for _, number in requests]
        on_text = (lambda row, text: echo(text, nl=False)) if streaming else None
        decode = partial(generate, texts, seeds=seeds, on_text=on_text, draft=proposer, **options)
        generated = together(ranks, lambda: decode() if texts else [])
        outputs = [({"seed": number}, output) for number, output in zip(seeds, generated, strict=True)]

    def print_outputs(first: int) -> None:
        for n, (label, output) in enumerate(outputs, first):
            tokens = opened.back_off(output.ids, opened.tokenizer.encode(output.prompt)) if back_off else None
            _print_output(n, label, output, tokens, streamed=streaming, as_json=as_json)

    if ranks is None:
        print_outputs(1)
    else:
        first = 1 + sum(ranks.gather(len(outputs))[: ranks.rank])
        for text in in_rank_order(ranks, lambda: [captured(lambda: print_outputs(first))]):
            echo(text, nl=False)
    if proposer is not None:
        accepted, drafted = sum_over_ranks(proposer.accepted), sum_over_ranks(proposer.drafted)
        echo(f"{accepted:,} of {drafted:,} drafted tokens were accepted.", err=True)


def _print_output(n: int, label: dict[str, int], output: Any, back_off: Any, *, streamed: bool, as_json: bool) -> None:
    """Prints one output with its warnings; a streamed text is not printed again."""
    from seqwright.decoding.degeneration import degeneration_flags

    warnings = degeneration_flags(output.text, log_prob=output.log_prob, tokens=len(output.ids))
    if as_json:
        tokens = None if back_off is None else [asdict(token) for token in back_off]
        print_json(asdict(output) | label | {"warnings": [flag.as_json() for flag in warnings], "back_off": tokens})
        return
    ((what, number),) = label.items()
    echo("" if streamed else f"--- {n} ({what} {number})\n{output.prompt}{output.text}")
    if back_off is not None:
        echo(back_off_text(back_off))
    if output.unread:
        echo(f"the first {output.unread} tokens of the prompt exceed the context and were dropped.", err=True)
    for flag in warnings:
        echo(f"output {n} looks degenerate: {flag}.", err=True)
