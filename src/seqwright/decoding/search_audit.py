"""Search audit: search errors and model errors of beam search, against exact search.

Exact search, bounded by the outputs of the beams, proves which output scores highest (Stahlberg & Byrne 2019). A beam
that misses this optimum makes a search error. Where the optimum is itself bad, above all where it is empty, the error
is the model's, and a larger beam makes it worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from seqwright.core.batch import IGNORE, Batch, Source
from seqwright.core.progress import SILENT, Progress
from seqwright.core.protocols import Autoregressive
from seqwright.decoding.exact import Found, exact_search
from seqwright.decoding.length_penalty import normalize
from seqwright.decoding.options import Hypothesis, SearchOptions
from seqwright.decoding.processors import LogitsProcessors
from seqwright.decoding.search import max_lengths, search

TOLERANCE = 1e-6
"""Scores closer than this are equal: the same sum in another order differs by as much."""


@dataclass(frozen=True, kw_only=True)
class WidthErrors:
    """The errors of one beam size."""

    width: int
    missed: int
    """Sources with a search error, of those with a proven optimum."""
    unfinished: int
    """Of these, sources without an output that ends in <eos>, although the optimum does."""
    gap: float
    """Mean difference between the score of the optimum and of the beam's output, over the other proven sources."""
    search_errors: int | None = None
    """Sources whose reference scores higher than the beam's output."""
    model_errors: int | None = None
    """Sources whose reference scores no higher than the beam's output, which differs from it."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of a search audit; its fields are the JSON of `seqwright search-audit --json`."""

    sources: int
    proven: int
    """Sources whose optimum is proven; for the others the exact search gave up."""
    empty: int
    """Empty optima: model errors."""
    nodes: int
    """Prefixes expanded by the exact search."""
    widths: list[WidthErrors]
    best: list[Hypothesis | None]
    """The optimum of each source; None where it is not proven."""

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
    progress: Progress = SILENT,
) -> Audit:
    """The errors of beams of several sizes; the exact search of a source gives up after `options.max_nodes` prefixes.

    With `references`, the scores of each beam's outputs are also compared with those of the references.
    """
    prefixes = [[*([] if sos is None else [sos]), *prompt] for prompt in (prompts or [()] * source.rows)]
    inputs: dict[str, Any] = {"sos": sos, "eos": eos, "banned": banned, "prompts": prompts}
    beams = {}
    for width in widths:
        progress.stage(f"beam search, size {width}")
        beams[width] = search(model, source, replace(options, kind="beam", beam_size=width, n_best=1), **inputs)
    progress.stage("")
    processors = LogitsProcessors.of([options], eos=eos, banned=banned, device=source.device)
    results: list[Found] = []
    for n, limit in enumerate(max_lengths(model, source, options, prefixes)):
        known = [hypothesis for outputs in beams.values() for hypothesis in outputs[n]]
        row = source.select(torch.tensor([n], device=source.device))
        exact = replace(options, kind="exact", n_best=1)
        result = exact_search(
            model,
            row,
            exact,
            prompt=prefixes[n],
            limit=limit,
            processors=processors,
            known=known,
            on_node=partial(_advance, progress, n, source.rows, options.max_nodes),
        )
        results.append(result)
    audit = _summary(results, beams)
    if references is None or eos is None:
        return audit
    scores = [
        _score(model, source.select(torch.tensor([n], device=source.device)), prompt, [*ids, eos], options)
        for n, (prompt, ids) in enumerate(zip(prefixes, references, strict=True))
    ]
    return replace(
        audit, widths=[_with_reference_errors(row, beams[row.width], references, scores) for row in audit.widths]
    )


def _advance(progress: Progress, row: int, rows: int, max_nodes: int | None, nodes: int) -> None:
    """Reports nodes of all that the exact searches may expand, or sources where these have no limit."""
    most = max_nodes or 1
    progress.advance(row * most + min(nodes, most), rows * most)


@torch.inference_mode()
def _score(model: Autoregressive, source: Source, prompt: list[int], ids: list[int], options: SearchOptions) -> float:
    """The score of a reference as if it were an output."""
    input = torch.tensor([[*prompt, *ids[:-1]]], device=source.device)
    target = torch.tensor([[IGNORE] * (len(prompt) - 1) + ids], device=source.device)
    log_probs, _ = model.score(Batch(source=source, input=input, target=target))
    return float(normalize(log_probs.sum(), len(ids), options))


def _with_reference_errors(
    row: WidthErrors, outputs: list[list[Hypothesis]], references: Sequence[Sequence[int]], scores: list[float]
) -> WidthErrors:
    """The errors of one beam size, those against the references included."""
    search_errors = model_errors = 0
    for hypotheses, reference, score in zip(outputs, references, scores, strict=True):
        missed = not hypotheses or score > hypotheses[0].score + TOLERANCE
        search_errors += missed
        model_errors += not missed and hypotheses[0].ids != list(reference)
    return replace(row, search_errors=search_errors, model_errors=model_errors)


def _summary(results: list[Found], beams: dict[int, list[list[Hypothesis]]]) -> Audit:
    best = [result.best[0] if result.proven and result.best else None for result in results]
    proven = [n for n, hypothesis in enumerate(best) if hypothesis is not None]
    widths = []
    for width, outputs in beams.items():
        gaps = [gap for n in proven if (gap := _gap(best[n], outputs[n])) is not None]
        unfinished = len(proven) - len(gaps)
        missed = unfinished + sum(gap > TOLERANCE for gap in gaps)
        mean = sum(gaps) / max(1, len(gaps))
        widths.append(WidthErrors(width=width, missed=missed, unfinished=unfinished, gap=mean))
    return Audit(
        sources=len(results),
        proven=len(proven),
        empty=sum(hypothesis is not None and not hypothesis.ids for hypothesis in best),
        nodes=sum(result.nodes for result in results),
        widths=widths,
        best=best,
    )


def _gap(best: Hypothesis | None, outputs: list[Hypothesis]) -> float | None:
    """Score of the optimum less that of a beam's output; None where only the optimum is finished."""
    assert best is not None
    if not outputs or (outputs[0].reason, best.reason) == ("length", "end"):
        return None
    return max(0.0, best.score - outputs[0].score)
