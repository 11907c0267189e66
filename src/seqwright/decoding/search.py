"""Search: from sources to their best outputs, by beam, greedy or exact search, or by sampling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial

import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.config import UserError
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.beam import Step, beam_search
from seqwright.decoding.constraints import constraints_of
from seqwright.decoding.engine import Engine
from seqwright.decoding.exact import exact_search
from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, ProcessorOptions, SamplingOptions, SearchOptions
from seqwright.decoding.phrases import Automaton, Phrase
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.requests import Request


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
    on_step: Callable[[Step], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs of each source, best first.

    `banned` ids are never generated. `prompts` are prefixes of the outputs: read after <sos>, neither scored nor
    counted in the length. No output contains a phrase of the `forbidden` automaton, and every finished one contains the
    `required` phrases of its source, prompts included: outputs without them are searched for by beam, whatever the
    kind. `on_step` is called with every step of a beam.
    """
    if source.rows == 0:
        return []
    first = [] if sos is None else [sos]
    prefixes = [[*first, *prompt] for prompt in (prompts if prompts is not None else [()] * source.rows)]
    if not all(prefixes):
        raise UserError("this model has no <sos>: a search needs a prompt to begin with.")
    limits = max_lengths(model, source, options, prefixes)
    processors = LogitsProcessors.of([options], eos=eos, banned=banned, device=source.device)
    phrases = [()] * source.rows if required is None else required
    if options.kind == "sample":
        if forbidden is not None or any(phrases):
            raise UserError('forbidden and required phrases need a search, not kind = "sample"; use a beam.')
        return sample(model, source, options, prompts=prefixes, limits=limits, eos=eos, banned=banned)
    if options.kind == "exact":
        constraints = constraints_of(forbidden, phrases, prefixes, source.device)
        return [
            exact_search(
                model,
                source.select(torch.tensor([n], device=source.device)),
                options,
                prompt=prompt,
                limit=limits[n],
                processors=processors,
                constraints=None if constraints is None else replace(constraints, first=constraints.first[n : n + 1]),
            ).best
            for n, prompt in enumerate(prefixes)
        ]
    if any(phrases) and options.beam_groups > 1:
        raise UserError("required phrases and diverse beam search do not go together; set beam_groups = 1.")
    search_by_beam = partial(_beam, model, processors=processors, forbidden=forbidden, on_step=on_step)
    beam = options
    if options.kind == "greedy":
        beam = replace(options, kind="beam", beam_size=1, beam_groups=1, n_best=1, stopping="finished", finished=1)
    outputs = search_by_beam(source, beam, prefixes, limits, [()] * source.rows)

    # Outputs that contain their required phrases stay as they are; the others are searched for again, by their beams.
    again = defaultdict(list)
    for n, (own, hypotheses) in enumerate(zip(phrases, outputs, strict=True)):
        if not all(phrase.occurs_in([*prefixes[n], *one.ids]) for phrase in own for one in hypotheses):
            # A bank without a beam loses the hypotheses that have yet to begin a phrase, where they would have it.
            banks = 1 + sum(int(phrase.matched_pieces.max()) for phrase in own)
            again[max(options.beam_size, banks)].append(n)
    for size, rows in again.items():
        found = search_by_beam(
            source.select(torch.tensor(rows, device=source.device)),
            replace(options, kind="beam", beam_size=size),
            [prefixes[n] for n in rows],
            [limits[n] for n in rows],
            [phrases[n] for n in rows],
        )
        for n, hypotheses in zip(rows, found, strict=True):
            outputs[n] = hypotheses
    return outputs


def _beam(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    required: Sequence[Sequence[Phrase]],
    *,
    processors: LogitsProcessors,
    forbidden: Automaton | None,
    on_step: Callable[[Step], None] | None,
) -> list[list[Hypothesis]]:
    """The best outputs of a beam search, with log-probabilities of the model itself."""
    outputs = beam_search(
        model,
        source,
        options,
        prompts=prompts,
        limits=limits,
        processors=processors,
        constraints=constraints_of(forbidden, required, prompts, source.device),
        on_step=on_step,
    )
    return _rescored(model, source, prompts, outputs, processors.eos) if options.penalized else outputs


def max_lengths(
    model: Autoregressive, source: Source, options: SearchOptions, prompts: Sequence[Sequence[int]]
) -> list[int]:
    """Where each output is cut off: T = length_ratio · |x| + max_tokens, or where the model's context ends."""
    limits = (source.mask.sum(1).cpu() * options.length_ratio).long() + options.max_tokens
    if model.context is None:
        return limits.tolist()
    for prompt in prompts:
        if len(prompt) > model.context:
            raise UserError(
                f"a prompt of {len(prompt)} tokens does not fit the context of {model.context}; shorten it."
            )
    return [min(t, model.context - len(p) + 1) for t, p in zip(limits.tolist(), prompts, strict=True)]


def sample(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    *,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    eos: int | None,
    banned: Sequence[int],
) -> list[list[Hypothesis]]:
    """`n_best` samples of each source, best first, with seeds that count up; the same output may recur."""
    many = options.n_best
    shared = {f.name: getattr(options, f.name) for f in fields(ProcessorOptions)}
    requests = [
        Request(prompt=prompt, options=SamplingOptions(**shared, max_tokens=limit), seed=options.seed + n)
        for prompt, limit in zip(prompts, limits, strict=True)
        for n in range(many)
    ]
    rows = torch.arange(source.rows, device=source.device).repeat_interleave(many)
    engine = Engine(model, end=eos, banned=banned, device=source.device)
    drawn = engine.admit(requests, source.select(rows))
    engine.finish()
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
    return [sorted(group, key=lambda hypothesis: -hypothesis.score) for group in grouped]


@torch.inference_mode()
def _rescored(
    model: Autoregressive,
    source: Source,
    prompts: Sequence[Sequence[int]],
    outputs: list[list[Hypothesis]],
    eos: int | None,
) -> list[list[Hypothesis]]:
    """The same hypotheses with log-probabilities of the model itself: penalties are part of the score alone."""
    rescored = []
    for n, hypotheses in enumerate(outputs):
        row = source.select(torch.tensor([n], device=source.device))
        group = []
        for one in hypotheses:
            ids = [*one.ids, *([eos] if one.reason == "end" and eos is not None else [])]
            given = torch.tensor([[*prompts[n], *ids[:-1]]], device=source.device)
            target = torch.tensor([[IGNORE] * (len(prompts[n]) - 1) + ids], device=source.device)
            log_probs, _ = model.score(Batch(source=row, input=given, target=target))
            group.append(replace(one, log_prob=float(log_probs.sum())))
        rescored.append(group)
    return rescored
