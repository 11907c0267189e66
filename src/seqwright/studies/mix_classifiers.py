"""`mix` of classifiers: what each says of a text is averaged, with weights and a mean that suit held-out texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from seqwright import build
from seqwright.core.config import UserError
from seqwright.core.storage import to_json
from seqwright.data.files import as_list
from seqwright.data.labeled.rows import read_rows, train_valid_split
from seqwright.metrics.calibration import log_softmax
from seqwright.metrics.interpolation import best_weights, geometric_weights
from seqwright.metrics.score import Floats
from seqwright.pipeline import training as session
from seqwright.runs.run import Run
from seqwright.tasks.classification.scores import log_probs_of

HELD_OUT = ("train", "valid", "split", "columns", "separator")
"""Keys of [data] that say which texts a run did not learn from."""
CUTTING = ("long", "longest", "framed")
"""Keys of [data] that say how a part cuts its texts."""


def mix_classifiers(runs: Sequence[Any], on: str | Sequence[str] | None, path: Path) -> dict[str, Any]:
    """Makes a run of classifiers of the same classes; weight, loss and accuracy of each, and those together."""
    first = runs[0]
    for run in runs:
        _refuse_unlike(first, run)
        if on is None and any(getattr(run.settings.data, key) != getattr(first.settings.data, key) for key in HELD_OUT):
            raise UserError(f"{first.path} and {run.path} share no held-out texts; name some with --on FILE.")
    rows = first.rows(on).rows
    warnings = [] if on is None else [*_learned(runs, [row.texts for row in rows])]
    wanted = first.labels.targets(rows)
    texts = [row.texts for row in rows]
    log_probs = np.stack([_log_probs(run, texts) for run in runs])  # (M, N, C)
    mean, weights, together = _best(log_probs, wanted)
    parts = {
        str(n): {
            "model": run.settings.table()["model"],
            "vocabulary": {key: value for key, value in asdict(run.tokenizer.vocabulary).items() if value is not None},
            "data": {key: value for key, value in run.settings.table()["data"].items() if key in CUTTING},
        }
        for n, run in enumerate(runs, 1)
    }
    table = {"kind": "mixture", "weights": weights.tolist(), "mean": mean, "parts": parts}
    made = first.settings.remade(path.name, table)
    model = build.model(made.model, type(first).sizes(first.directory), task="labeled")
    model.models = [run.model for run in runs]
    shown = [
        {"run": str(run.path), "weight": float(weight)} | _measured(own, wanted)
        for run, weight, own in zip(runs, weights, log_probs, strict=True)
    ]
    beside = {f"tokenizer-{n}.json": run.tokenizer.json for n, run in enumerate(runs[1:], 2)}
    return session.keep(
        made,
        path,
        tokenizer=first.tokenizer.json,
        model=model,
        notes=[*_told(shown, mean), _tuned(_measured(together, wanted)), *warnings],
        beside=beside | {"labels.json": to_json(first.labels.table()) + "\n"},
        parts=shown,
        mean=mean,
        warnings=warnings,
        tuned_on=as_list(on or "validation"),
        tuned=_measured(together, wanted),
    )


def _told(shown: Sequence[dict[str, Any]], mean: str) -> Iterator[str]:
    for one in shown:
        yield f"{one['weight']:.4f} of {Path(one['run']).name} ({mean}), alone {_figures(one)}"


def _tuned(measured: dict[str, float]) -> str:
    return f"together {_figures(measured)}, where the weights were tuned: other texts say more"


def _figures(one: dict[str, Any]) -> str:
    return f"accuracy {one['accuracy']:.2f} %, nll {one['nll']:.4f}"


def _learned(runs: Sequence[Any], texts: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """What is wrong with weights found on texts that a run has learned: it is too sure of them."""
    for run in runs:
        data = run.settings.data
        try:
            train, _ = train_valid_split(read_rows(data.train, data), data)
        except UserError:  # its files are no longer there to be asked
            continue
        known = {row.texts for row in train.rows}
        if many := sum(text in known for text in texts):
            yield (
                f"{many:,} of the {len(texts):,} texts that set the weights are training texts of {run.path}, which is"
                " surer of them than of others; name held-out ones with --on."
            )


def _log_probs(run: Any, texts: Sequence[tuple[str, ...]]) -> Floats:
    """As the model gives them: what a temperature does, weights do again."""
    return log_probs_of(run.predictor(replace(run.settings.decoding, temperature=1.0))(texts).found)


def _best(log_probs: Floats, wanted: Any) -> tuple[str, Floats, Floats]:
    """The mean under which held-out answers are more probable, its weights, and the mixed log-probabilities."""
    own = log_probs[:, np.arange(len(wanted)), wanted]  # (M, N)
    shares, powers = best_weights(own.T), geometric_weights(log_probs, wanted)
    with np.errstate(divide="ignore"):
        linear = np.logaddexp.reduce(log_probs + np.log(shares)[:, None, None], axis=0)
    pooled = log_softmax(np.einsum("m,mnc->nc", powers, log_probs))
    found = [("arithmetic", shares, linear), ("geometric", powers, pooled)]
    return min(found, key=lambda one: _measured(one[2], wanted)["nll"])


def _measured(log_probs: Floats, wanted: Any) -> dict[str, float]:
    right = log_probs.argmax(1) == wanted
    return {"nll": float(-log_probs[np.arange(len(wanted)), wanted].mean()), "accuracy": 100 * float(right.mean())}


def _refuse_unlike(one: Any, other: Run) -> None:
    """Raises unless two runs answer with the same classes."""
    if other.settings.data.kind != "labeled":
        raise UserError(
            f"{other.path} holds a model that {other.does}; only classifiers of texts can be mixed with {one.path}."
        )
    for run in (one, other):
        if run.labels.kind != "single" or hasattr(run.model, "models"):
            raise UserError(f"{run.path} answers with no single class, or is a mixture itself; mix its parts.")
    if one.labels != other.labels:
        raise UserError(
            f"{one.path} knows {', '.join(one.labels.names[:5])} and {other.path} {', '.join(other.labels.names[:5])}:"
            " only answers to the same question can be averaged; train both on the same labels."
        )
