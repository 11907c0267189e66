"""`mix`: a linear interpolation (mixture) of several runs, with weights tuned on held-out text by EM.

Language models can also be mixed log-linearly, p ∝ Π p_i^weight (`studies/mix_log_linear.py`), or both (decision 266).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.config import UserError
from seqwright.data.files import as_list
from seqwright.data.text.stream import Stream
from seqwright.metrics.interpolation import interpolation_weights
from seqwright.metrics.likelihood import score_text
from seqwright.metrics.score import Floats
from seqwright.pipeline.untrained import keep
from seqwright.runs.directory import RunDirectory
from seqwright.runs.finding import training_with
from seqwright.runs.overlap import hold_out_the_same, own_data, training_overlap
from seqwright.runs.run import Run
from seqwright.studies.mix_classifiers import mix_classifiers
from seqwright.studies.mix_log_linear import log_linear_weights
from seqwright.studies.mix_translators import mix_translators
from seqwright.studies.mix_weights import idle_parts

MIXED = {"translate": "translation", "classify": "classification", "generate": "language modeling"}
"""Tasks whose models can be mixed, by the verb of their runs."""
GAIN = 0.005
"""Share of the loss that a log-linear mixture must save, since scoring with it computes whole distributions."""


def mix(
    runs: Sequence[Run],
    on: str | Sequence[str],
    path: Path,
    *,
    geometric: bool = False,
    final: Callable[[], Run] | None = None,
) -> dict[str, Any]:
    """Writes a mixture of runs with the same tokenizer; its summary has the weight of each run and all perplexities.

    `geometric` takes the log-linear mean instead of the linear one; of classifiers, and with an n-gram (`final`), the
    mean of lower held-out loss is chosen anyway, of which the log-linear one is interpolated with its parts. `final`
    makes the run that takes the place of the last one after the weights are tuned.
    """
    if len(runs) < 2:
        raise UserError(
            "a mixture needs two runs or more; name another, or mix a language model with an n-gram: --ngram."
        )
    _check_tasks(runs)
    RunDirectory.refuse_existing(path)
    if "translate" in runs[0].verbs:
        return mix_translators(runs, on, path, geometric=geometric)
    if runs[0].settings.data.kind == "labeled":
        if geometric:
            raise UserError("of classifiers the mean of lower held-out loss is chosen anyway: omit --geometric.")
        return mix_classifiers(runs, on or None, path)
    for run in runs:
        _check_compatible(runs[0], run, _ngram_hint(runs))
        if not on:
            _check_held_out(runs[0], run, _ngram_hint(runs))
    first = runs[0]
    with own_data(first, on or None, use="tunes the weights on"):
        stream = first.stream(on or None)
    log_probs = np.stack([_log_probs(run, stream, run.model) for run in runs], 1)  # (T, M)
    weights, mixed = _interpolated(log_probs)
    mean, interpolation = "arithmetic", np.array([])
    excluded = np.isneginf(log_probs).any()
    if geometric and excluded:
        raise UserError(
            "a run gives some token of the held-out text no probability, so the geometric mean has none either; omit"
            " --geometric, or smooth that run."
        )
    if geometric or (final is not None and not excluded):
        powers = log_linear_weights(runs, stream)
        pooled = _log_probs(first, stream, _mixture(runs, powers, "geometric", path)[1])
        if geometric:
            weights, mean, mixed = powers, "geometric", pooled
        else:
            of_all, interpolated = _interpolated(np.column_stack([log_probs, pooled]))
            # By the whole text: of a large vocabulary the sample that tunes the weights is a few hundred tokens.
            if interpolated.mean() > (1 - GAIN) * mixed.mean():
                weights, mean, interpolation, mixed = powers, "geometric", of_all[:-1], interpolated
    warnings = [*training_overlap(runs, on)]
    if final is not None:
        runs = [*runs[:-1], final()]
    settings, model = _mixture(runs, weights, mean, path, interpolation)
    shares = weights / weights.sum()
    if len(interpolation):
        shares = interpolation + (1 - interpolation.sum()) * shares
    warnings += idle_parts([run.path for run in runs], shares)
    if runs[-1].settings.data.refit:  # no longer held out of the mixture
        settings = replace(settings, data=replace(settings.data, refit=True))
    notes = [f"{weight:.4f} of {run.path.name} ({mean})" for weight, run in zip(weights, runs, strict=True)] + warnings
    part_facts = [
        {"run": str(run.path), "weight": float(weight)} | _tuned(of_run, stream)
        for run, weight, of_run in zip(runs, weights, log_probs.T, strict=True)
    ]
    for part, share in zip(part_facts, interpolation, strict=False):  # none, or one for each
        part["interpolation"] = float(share)
    return keep(
        settings,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=notes,
        parts=part_facts,
        mean=mean,
        warnings=warnings,
        tuned_on=as_list(on),
        tuned=_tuned(mixed, stream),
        corpus=first.summary.get("corpus", ""),
    )


def _interpolated(log_probs: Floats) -> tuple[Floats, Floats]:
    """The weights of the best linear mixture of log-probabilities (T, M), and its own (T,)."""
    weights = interpolation_weights(log_probs)
    with np.errstate(divide="ignore"):
        return weights, np.logaddexp.reduce(log_probs + np.log(weights), axis=1)


def _mixture(
    runs: Sequence[Run], weights: Floats, mean: str, path: Path, interpolation: Floats | None = None
) -> tuple[Any, Any]:
    """The settings and the model of a mixture."""
    parts = {str(n): run.settings.table()["model"] for n, run in enumerate(runs, 1)}
    table = {"kind": "mixture", "weights": weights.tolist(), "mean": mean, "parts": parts}
    if interpolation is not None and len(interpolation):
        table["interpolation"] = interpolation.tolist()
    settings = runs[0].settings.remade(path.name, table)
    model = build.model(settings.model, runs[0].tokenizer.vocabulary)
    model.models = [run.model for run in runs]
    return settings, model


def _tuned(log_probs: Floats, stream: Stream) -> dict[str, float]:
    """Perplexity of a stream and, where its tokens determine the text, bits per byte."""
    perplexity = {"perplexity": float(np.exp(-log_probs.mean()))}
    if stream.lossy:
        return perplexity
    return perplexity | {"bits_per_byte": float(-log_probs.sum() / math.log(2) / max(1, stream.sizes[:, 0].sum()))}


def _check_tasks(runs: Sequence[Run]) -> None:
    """Raises unless all runs are of one task whose models can be mixed."""
    tasks = [next((task for verb, task in MIXED.items() if verb in run.verbs), None) for run in runs]
    if None not in tasks and len({*tasks}) == 1 and all(run.settings.data.kind != "images" for run in runs):
        return
    named = ", ".join(f"{run.path} ({run.settings.data.kind}: {run.description})" for run in runs)
    raise UserError(
        f"these runs cannot be mixed: {named}. Mix language models of one tokenizer, translators of the same"
        " vocabularies, or text classifiers of the same labels."
    )


def _ngram_hint(runs: Sequence[Run]) -> str:
    """How to mix networks with an n-gram, where that is wanted."""
    networks = [str(run.path) for run in runs if run.settings.kind != "ngram"]
    if not networks or len(networks) == len(runs):
        return ""
    return f"; or let mix fit the n-gram itself: `seqwright mix {' '.join(networks)} --ngram --run NEW`"


def _check_compatible(one: Run, other: Run, hint: str) -> None:
    """Raises unless two language models have the same tokenizer and documents."""
    if one.tokenizer.hash != other.tokenizer.hash:
        again = next((run.path for run in (one, other) if getattr(run.settings.data, "refit", False)), None)
        learned = f"; that of {again} was learned again with its held-out text (data.refit)" if again else ""
        raise UserError(
            f"{one.path} and {other.path} have different tokenizers ({one.tokenizer.hash[:12]} and"
            f" {other.tokenizer.hash[:12]}), so their probabilities are not over the same tokens{learned}; train"
            f" both on the same text with the same [tokenizer]{hint}."
        )
    if one.documents != other.documents:
        raise UserError(
            f"a document is a {one.documents} in {one.path} and a {other.documents} in {other.path};"
            " train both with the same data.document."
        )
    if one.settings.data.mask_documents != other.settings.data.mask_documents:
        raise UserError(
            f"only one of {one.path} and {other.path} masks attention across documents; train both with the same"
            " data.mask_documents."
        )


def _check_held_out(one: Run, other: Run, hint: str) -> None:
    """Raises unless the validation text of one run was held out of the training of another."""
    if not hold_out_the_same(one, other):
        raise UserError(
            f"{one.path} and {other.path} hold out different texts; give text that neither was trained on with --on"
            f"{hint}."
        )
    if other.settings.data.refit:
        raise UserError(
            f"{other.path} was fitted on its held-out text, too (data.refit); give other text with --on FILE, or train"
            f" it without: `{training_with(other.path, {'data.refit': 'false'})}`{hint}."
        )


@torch.no_grad()
def _log_probs(run: Run, stream: Stream, model: Any) -> Floats:
    """log p of every predicted token under a model with the settings of a run, (T,)."""
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    settings = run.settings
    stride, mask_documents = settings.evaluation.stride, settings.data.mask_documents
    scored = score_text(model, ids, sos=stream.sos, stride=stride, mask_documents=mask_documents, device=run.device)
    log_probs: Floats = scored.log_probs[scored.mask]
    return log_probs
