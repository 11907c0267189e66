"""Search: from sources to their best outputs, by whichever kind of search the options name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from seqwright.core.batch import Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.bans import Rules
from seqwright.decoding.beam import Step, beam_search
from seqwright.decoding.constraints import wishes
from seqwright.decoding.exact import exact_search
from seqwright.decoding.generate import generate
from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.phrases import Automaton, Phrase
from seqwright.decoding.sampling import SamplingOptions


def search(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    sos: int | None,
    eos: int | None,
    banned: Sequence[int] = (),
    prompts: Sequence[Sequence[int]] | None = None,
    forbidden: Automaton | None = None,
    required: Sequence[Sequence[Phrase]] | None = None,
    listen: Callable[[Step], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs of each source, best first.

    `banned` ids are never said. `prompts` are what each output begins with: read after <sos>, neither scored nor
    counted in the length. What the `forbidden` automaton looks for occurs in no output, `required` phrases (for each
    source) in all that end, prompts included. `listen` hears every step of a beam.
    """
    if source.rows == 0:
        return []
    beginning = [] if sos is None else [sos]
    begun = [[*beginning, *prompt] for prompt in (prompts if prompts is not None else [()] * source.rows)]
    if not all(begun):
        raise UserError("this model has no <sos>: a search needs a prompt to begin with.")
    most = lengths(model, source, options, begun)
    rules = Rules.of(options, eos=eos, banned=banned, device=source.device)
    wished = wishes(forbidden, [()] * source.rows if required is None else required, begun, source.device)
    if options.kind == "sample":
        if rules.no_repeat_ngram or rules.min_tokens or wished is not None:
            raise UserError('rules on what is said are kept by searches, not by kind = "sample"; use a beam.')
        return sample(model, source, options, prompts=begun, most=most, eos=eos, banned=banned)
    if options.kind == "exact":
        return [
            exact_search(
                model,
                source.select(torch.tensor([n], device=source.device)),
                options,
                prompt=prompt,
                most=most[n],
                rules=rules,
                wishes=None if wished is None else replace(wished, first=wished.first[n : n + 1]),
            ).best
            for n, prompt in enumerate(begun)
        ]
    if options.kind == "greedy":
        options = replace(options, kind="beam", beam_size=1, beam_groups=1, n_best=1, stopping="finished", finished=1)
    return beam_search(model, source, options, prompts=begun, most=most, rules=rules, wishes=wished, listen=listen)


def lengths(
    model: Autoregressive, source: Source, options: SearchOptions, prompts: Sequence[Sequence[int]]
) -> list[int]:
    """Where each output is cut off: T = length_ratio · |x| + length, or where the model's context ends."""
    most = (source.mask.sum(1).cpu() * options.length_ratio).long() + options.max_tokens
    if model.context is None:
        return most.tolist()
    for prompt in prompts:
        if len(prompt) > model.context:
            raise UserError(
                f"a prompt of {len(prompt)} tokens does not fit the context of {model.context}; shorten it."
            )
    return [min(t, model.context - len(p) + 1) for t, p in zip(most.tolist(), prompts, strict=True)]


def sample(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    prompts: Sequence[Sequence[int]],
    most: Sequence[int],
    eos: int | None,
    banned: Sequence[int],
) -> list[list[Hypothesis]]:
    """As many outputs of each source as the options call best, drawn with seeds that count up; the same may recur."""
    many = options.n_best
    rows = torch.arange(source.rows, device=source.device).repeat_interleave(many)
    said = [0] * len(rows)

    def enough(row: int, id: int) -> bool:
        said[row] += 1
        return said[row] == most[row // many]

    drawn = generate(
        model,
        [prompt for prompt in prompts for _ in range(many)],
        SamplingOptions(
            max_tokens=max(most), temperature=options.temperature, top_k=options.top_k, top_p=options.top_p
        ),
        end=eos,
        banned=banned,
        seeds=[options.seed + n for _ in prompts for n in range(many)],
        source=source.select(rows),
        device=source.device,
        listen=enough,
    )
    hypotheses = [
        Hypothesis(
            ids=row.ids,
            log_prob=row.log_prob,
            score=float(normalize(torch.tensor(row.log_prob), len(row.ids) + (row.reason == "end"), options)),
            reason="end" if row.reason == "end" else "length",
        )
        for row in drawn
    ]
    grouped = [hypotheses[n * many : (n + 1) * many] for n in range(source.rows)]
    return [sorted(own, key=lambda hypothesis: -hypothesis.score) for own in grouped]
