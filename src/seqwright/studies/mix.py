"""`mix`: several runs as one, their probabilities averaged with the weights that suit a held-out text best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqwright import build
from seqwright.core.config import UserError
from seqwright.data.files import as_list
from seqwright.data.text.stream import Stream
from seqwright.metrics.interpolation import best_weights
from seqwright.metrics.likelihood import score_text
from seqwright.metrics.score import Floats
from seqwright.pipeline import training as session
from seqwright.runs.run import Run
from seqwright.studies.mix_classifiers import mix_classifiers
from seqwright.studies.mix_files import learned
from seqwright.studies.mix_translators import mix_translators


def mix(runs: Sequence[Run], on: str | Sequence[str], path: Path, *, geometric: bool = False) -> dict[str, Any]:
    """Makes a run of runs that read text alike; the weight and perplexity of each, and the perplexity together.

    `geometric` multiplies the probabilities of translators instead of adding them up.
    """
    if len(runs) < 2:
        raise UserError("a mixture needs two runs or more; name another.")
    if "translate" in runs[0].verbs:
        return mix_translators(runs, on, path, geometric=geometric)
    if geometric:
        raise UserError("--geometric is for translators; of classifiers the mean that suits better is taken anyway.")
    if runs[0].settings.data.kind == "labeled":
        return mix_classifiers(runs, on or None, path)
    if not on:
        raise UserError("say which held-out text sets the weights: --on FILE.")
    for run in runs:
        _refuse_unlike(runs[0], run)
    first = runs[0]
    stream = first.stream(on)
    log_probs = np.stack([_log_probs(run, stream) for run in runs], 1)  # (T, M)
    weights = best_weights(log_probs)
    with np.errstate(divide="ignore"):
        together = np.logaddexp.reduce(log_probs + np.log(weights), axis=1)
    alone = [float(np.exp(-own.mean())) for own in log_probs.T]
    parts = {str(n): run.settings.table()["model"] for n, run in enumerate(runs, 1)}
    table = {"kind": "mixture", "weights": weights.tolist(), "parts": parts}
    made = first.settings.remade(path.name, table)
    warnings = [*learned(runs, on)]
    notes = [f"{weight:.4f} of {run.path.name}" for weight, run in zip(weights, runs, strict=True)] + warnings
    model = build.model(made.model, first.tokenizer.vocabulary)
    model.models = [run.model for run in runs]
    shown = [
        {"run": str(run.path), "weight": float(weight), "perplexity": perplexity}
        for run, weight, perplexity in zip(runs, weights, alone, strict=True)
    ]
    return session.keep(
        made,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=notes,
        parts=shown,
        warnings=warnings,
        tuned_on=as_list(on),
        tuned={"perplexity": float(np.exp(-together.mean()))},
    )


def _refuse_unlike(one: Run, other: Run) -> None:
    """Raises unless two runs cut text into the same ids."""
    for run in (one, other):
        if "generate" not in run.verbs:
            raise UserError(
                f"{run.path} holds a model that {run.does}; only language models, translators and classifiers of texts"
                " can be mixed."
            )
    if one.tokenizer.hash != other.tokenizer.hash:
        raise UserError(
            f"{one.path} and {other.path} cut text differently (tokenizers {one.tokenizer.hash[:12]} and"
            f" {other.tokenizer.hash[:12]}), so their probabilities are of different things; train both on the same"
            " text with the same [tokenizer]."
        )
    if one.documents != other.documents:
        raise UserError(
            f"a document is a {one.documents} to {one.path} and a {other.documents} to {other.path};"
            " train both with the same data.document."
        )
    if one.settings.data.mask_documents != other.settings.data.mask_documents:
        raise UserError(
            f"of {one.path} and {other.path} only one keeps documents apart; train both with the same"
            " data.mask_documents."
        )


@torch.no_grad()
def _log_probs(run: Run, stream: Stream) -> Floats:
    """Of every token that is predicted."""
    ids = torch.from_numpy(stream.ids.astype(np.int64))
    settings = run.settings
    stride, apart = settings.evaluation.stride, settings.data.mask_documents
    scored = score_text(run.model, ids, sos=stream.sos, stride=stride, apart=apart, device=run.device)
    log_probs: Floats = scored.log_probs[scored.real]
    return log_probs
