"""Search audit: how often a beam misses the best output, and whether the error is the model's or the search's.

An exact search, with the beams' outputs as bounds, finds the model's best output (Stahlberg & Byrne 2019). A miss is a
search error. Where the best output itself is bad - above all where it is empty - it is a model error, and a larger beam
makes it worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.exact import Found, exact_search
from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.search import max_lengths, search

SLACK = 1e-6
"""Scores nearer than this are equal: two orders of the same sums differ by as much."""


@dataclass(frozen=True, kw_only=True)
class Width:
    """What a beam of one width did."""

    width: int
    missed: int
    """Sources whose best output it did not find, of those with a proven best."""
    gap: float
    """By how much what it found scores less, on average over all proven sources."""
    search_errors: int | None = None
    """Sources whose reference the model prefers to what the beam found: it was there, and was missed."""
    model_errors: int | None = None
    """Sources for which the model prefers what the beam found to the reference."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    sources: int
    proven: int
    """Sources whose best output is known for sure; for the others the exact search gave up."""
    empty: int
    """Proven best outputs that say nothing: errors of the model."""
    nodes: int
    """Prefixes that the exact search looked at."""
    widths: list[Width]
    best: list[Hypothesis | None]
    """The best output of each source; None where it is not proven."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def search_audit(
    model: Autoregressive,
    source: Source,
    options: SearchOptions,
    widths: Sequence[int],
    *,
    sos: int | None,
    eos: int | None,
    banned: Sequence[int] = (),
    prompts: Sequence[Sequence[int]] | None = None,
    references: Sequence[Sequence[int]] | None = None,
) -> Audit:
    """Beams of several sizes against an exact search that gives up after `options.max_nodes` prefixes.

    With `references`, each beam's output is also compared with the reference under the model.
    """
    prefixes = [[*([] if sos is None else [sos]), *prompt] for prompt in (prompts or [()] * source.rows)]
    facts: dict[str, Any] = {"sos": sos, "eos": eos, "banned": banned, "prompts": prompts}
    beams = {
        width: search(model, source, replace(options, kind="beam", beam_size=width, n_best=1), **facts)
        for width in widths
    }
    processors = LogitsProcessors.of([options], eos=eos, banned=banned, device=source.device)
    found: list[Found] = []
    for n, limit in enumerate(max_lengths(model, source, options, prefixes)):
        known = [hypothesis for outputs in beams.values() for hypothesis in outputs[n]]
        row = source.select(torch.tensor([n], device=source.device))
        wanted = replace(options, kind="exact", n_best=1)
        found.append(
            exact_search(model, row, wanted, prompt=prefixes[n], limit=limit, processors=processors, known=known)
        )
    audit = _summary(found, beams)
    if references is None or eos is None:
        return audit
    scores = [
        _score(model, source.select(torch.tensor([n], device=source.device)), prompt, [*ids, eos], options)
        for n, (prompt, ids) in enumerate(zip(prefixes, references, strict=True))
    ]
    return replace(audit, widths=[_blamed(row, beams[row.width], references, scores) for row in audit.widths])


@torch.inference_mode()
def _score(model: Autoregressive, source: Source, prompt: list[int], ids: list[int], options: SearchOptions) -> float:
    """What a reference would score as an output."""
    input = torch.tensor([[*prompt, *ids[:-1]]], device=source.device)
    target = torch.tensor([[IGNORE] * (len(prompt) - 1) + ids], device=source.device)
    log_probs, _ = model.score(Batch(source=source, input=input, target=target))
    return float(normalize(log_probs.sum(), len(ids), options))


def _blamed(
    row: Width, outputs: list[list[Hypothesis]], references: Sequence[Sequence[int]], scores: list[float]
) -> Width:
    search_errors = model_errors = 0
    for own, reference, score in zip(outputs, references, scores, strict=True):
        missed = not own or score > own[0].score + SLACK
        search_errors += missed
        model_errors += not missed and own[0].ids != list(reference)
    return replace(row, search_errors=search_errors, model_errors=model_errors)


def _summary(found: list[Found], beams: dict[int, list[list[Hypothesis]]]) -> Audit:
    best = [one.best[0] if one.proven and one.best else None for one in found]
    proven = [n for n, hypothesis in enumerate(best) if hypothesis is not None]
    widths = []
    for width, outputs in beams.items():
        gaps = [_gap(best[n], outputs[n]) for n in proven]
        widths.append(Width(width=width, missed=sum(gap > SLACK for gap in gaps), gap=sum(gaps) / max(1, len(gaps))))
    return Audit(
        sources=len(found),
        proven=len(proven),
        empty=sum(hypothesis is not None and not hypothesis.ids for hypothesis in best),
        nodes=sum(one.nodes for one in found),
        widths=widths,
        best=best,
    )


def _gap(best: Hypothesis | None, outputs: list[Hypothesis]) -> float:
    """How much less a beam's output scores than the best; one that was cut off misses by all there is."""
    assert best is not None
    if not outputs or (outputs[0].reason, best.reason) == ("length", "end"):
        return float("inf")
    return max(0.0, best.score - outputs[0].score)
