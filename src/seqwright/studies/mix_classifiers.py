"""`mix` of classifiers: an arithmetic or geometric mean of class probabilities, tuned on held-out texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.protocols import Ensemble
from seqwright.core.storage import to_json
from seqwright.data.files import as_list
from seqwright.data.labeled.rows import read_rows, train_valid_split
from seqwright.metrics.calibration import log_softmax
from seqwright.metrics.interpolation import geometric_weights, interpolation_weights
from seqwright.metrics.score import Floats
from seqwright.pipeline.untrained import keep
from seqwright.runs.overlap import hold_out_the_same
from seqwright.studies.mix_weights import idle_parts
from seqwright.tasks.classification.scores import log_probs_of

ENCODING = ("truncation", "max_length", "padding", "add_special_tokens")
"""Keys of [data] that determine how a part encodes texts."""


def mix_classifiers(runs: Sequence[Any], on: str | Sequence[str] | None, path: Path) -> dict[str, Any]:
    """Writes a mixture of classifiers of the same classes; the summary has weight, nll and accuracy of each, and of the
    mixture."""
    first = runs[0]
    for run in runs:
        _check_compatible(first, run)
        if on is None and not hold_out_the_same(first, run):
            raise UserError(
                f"{first.path} and {run.path} have different validation splits; give held-out texts with --on FILE."
            )
    rows = first.rows(on).rows
    warnings = [] if on is None else [*_training_overlap(runs, [row.texts for row in rows])]
    targets = first.labels.targets(rows)
    texts = [row.texts for row in rows]
    log_probs = np.stack([_log_probs(run, texts) for run in runs])  # (M, N, C)
    mean, weights, mixed = _select_mean(log_probs, targets)
    warnings += idle_parts([run.path for run in runs], weights)
    parts = {
        str(n): {
            "model": run.settings.table()["model"],
            "vocabulary": {key: value for key, value in asdict(run.tokenizer.vocabulary).items() if value is not None},
            "data": {key: value for key, value in run.settings.table()["data"].items() if key in ENCODING},
        }
        for n, run in enumerate(runs, 1)
    }
    table = {"kind": "mixture", "weights": weights.tolist(), "mean": mean, "parts": parts}
    settings = first.settings.remade(path.name, table)
    model = build.model(settings.model, first.codec.sizes, task="labeled")
    model.models = [run.model for run in runs]
    part_facts = [
        {"run": str(run.path), "weight": float(weight)} | _metrics(of_run, targets)
        for run, weight, of_run in zip(runs, weights, log_probs, strict=True)
    ]
    extra_files = {f"tokenizer-{n}.json": run.tokenizer.json for n, run in enumerate(runs[1:], 2)}
    return keep(
        settings,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=[*_part_notes(part_facts, mean), _tuned_note(_metrics(mixed, targets)), *warnings],
        beside=extra_files | {"labels.json": to_json(first.labels.table()) + "\n"},
        parts=part_facts,
        mean=mean,
        warnings=warnings,
        tuned_on=as_list(on or "validation"),
        tuned=_metrics(mixed, targets),
    )


def _part_notes(parts: Sequence[dict[str, Any]], mean: str) -> Iterator[str]:
    for part in parts:
        yield f"{part['weight']:.4f} of {Path(part['run']).name} ({mean}), alone {_figures(part)}"


def _tuned_note(metrics: dict[str, float]) -> str:
    return f"mixture {_figures(metrics)} on the texts that tuned the weights; evaluate it on others"


def _figures(metrics: dict[str, Any]) -> str:
    return f"accuracy {metrics['accuracy']:.2f} %, nll {metrics['nll']:.4f}"


def _training_overlap(runs: Sequence[Any], texts: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A warning for each run that was trained on some of the tuning texts: its weight would be too large."""
    for run in runs:
        data = run.settings.data
        try:
            train, _ = train_valid_split(read_rows(data.train, data), data)
        except UserError:  # its training files are gone
            continue
        training_texts = {row.texts for row in train.rows}
        if overlap := sum(text in training_texts for text in texts):
            yield (
                f"{overlap:,} of the {len(texts):,} texts that tune the weights are training texts of {run.path}, which"
                " is overconfident on them; give held-out ones with --on."
            )


def _log_probs(run: Any, texts: Sequence[tuple[str, ...]]) -> Floats:
    """Log-probabilities (N, C) at temperature 1: tuned weights calibrate anyway."""
    return log_probs_of(run.predictor(run.predictor.encode(texts)).outputs)


def _select_mean(log_probs: Floats, targets: Any) -> tuple[str, Floats, Floats]:
    """The mean of lower held-out nll, its weights, and the mixed log-probabilities."""
    of_targets = log_probs[:, np.arange(len(targets)), targets]  # (M, N)
    shares, powers = interpolation_weights(of_targets.T), geometric_weights(log_probs, targets)
    with np.errstate(divide="ignore"):
        linear = np.logaddexp.reduce(log_probs + np.log(shares)[:, None, None], axis=0)
    pooled = log_softmax(np.einsum("m,mnc->nc", powers, log_probs))
    candidates = [("arithmetic", shares, linear), ("geometric", powers, pooled)]
    return min(candidates, key=lambda candidate: _metrics(candidate[2], targets)["nll"])


def _metrics(log_probs: Floats, targets: Any) -> dict[str, float]:
    correct = log_probs.argmax(1) == targets
    return {"nll": float(-log_probs[np.arange(len(targets)), targets].mean()), "accuracy": 100 * float(correct.mean())}


def _check_compatible(one: Any, other: Any) -> None:
    """Raises unless two runs are single-label classifiers of the same classes."""
    for run in (one, other):
        if run.labels.kind != "single" or isinstance(run.model, Ensemble):
            raise UserError(f"{run.path} is not a single-label classifier, or is a mixture itself; mix its parts.")
    if one.labels != other.labels:
        raise UserError(
            f"{one.path} has the classes {_first_classes(one)} and {other.path} {_first_classes(other)}:"
            " only the same classes can be averaged; train both on the same labels."
        )


def _first_classes(run: Any) -> str:
    return ", ".join(name or repr("") for name in run.labels.names[:5])  # an empty label is a class, too
