"""Tables behind the scores of a classifier: confusion matrix, classification report, reliability, label errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError
from seqwright.core.notebook import ResultList
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.row import Row
from seqwright.metrics.calibration import calibration_counts, fit_temperature, reliability
from seqwright.metrics.classification import confusion_matrix, per_class
from seqwright.metrics.score import Floats
from seqwright.tasks.classification.scores import ClassificationOptions, log_probs_of, scale_temperature

MAX_ERRORS = 10
"""Errors shown in the report."""
MIN_CALIBRATION = 50
"""Minimum number of texts to fit a temperature on."""


class LabelErrors(ResultList[dict[str, Any]]):
    """Texts that are classified otherwise than labeled."""

    probabilities = ""
    """Which model judged the texts, as a sentence."""


def details(
    outputs: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], options: ClassificationOptions
) -> dict[str, Any]:
    """Confusion matrix, per-class report, reliability and most confident errors; empty for regression."""
    if labels.kind == "regression":
        return {}
    if labels.kind == "multi":
        true = targets[:, : len(labels.names)] > 0
        return {"per_class": per_class(outputs >= options.threshold, true, labels.names)}
    known = targets != IGNORE
    predicted, classes = outputs.argmax(1), np.arange(len(labels.names))
    return {
        "classes": list(labels.names),
        "confusion": confusion_matrix(predicted[known], targets[known], len(classes)).tolist(),
        "per_class": per_class(predicted[:, None] == classes, targets[:, None] == classes, labels.names),
        "reliability": reliability(log_probs_of(outputs[known]), targets[known]),
        "mistakes": label_errors(outputs, targets, labels, rows, MAX_ERRORS, most_confident=True),
    }


def label_errors(
    outputs: Floats,
    targets: NDArray[Any],
    labels: Labels,
    rows: Sequence[Row],
    limit: int | None,
    *,
    most_confident: bool = False,
) -> list[dict[str, Any]]:
    """The texts that are classified otherwise, those with the least probable label first: hard texts and label errors
    (Northcutt et al. 2021); or, with `most_confident`, those with the most probable answer first."""
    if not rows:  # images have no text to show
        return []
    known = targets != IGNORE
    of_label = np.where(known, outputs[np.arange(len(outputs)), np.where(known, targets, 0)], 1.0)
    ranking = -outputs.max(1) if most_confident else of_label
    order = [n for n in np.argsort(ranking, kind="stable") if known[n] and outputs[n].argmax() != targets[n]]
    return [
        {
            "text": " | ".join(rows[n].texts),
            "place": rows[n].place,
            "label": rows[n].label,
            "answered": labels.names[int(outputs[n].argmax())],
            "probability": float(outputs[n].max()),
            "of_label": float(of_label[n]),
        }
        for n in order[:limit]
    ]


def no_label_errors(path: str, labels: Labels) -> UserError:
    """The error where a run predicts no single labels, whose probabilities would be ranked."""
    regression = labels.kind == "regression"
    return UserError(
        f"{path} predicts {'a number' if regression else 'any number of labels'} for each text, and label errors are"
        f" listed of single labels only. `seqwright classify {path} FILE --out predictions.csv` writes predictions"
        f" beside the labels of a file: {'sort by their difference' if regression else 'look where they differ'}."
    )


def calibration(probabilities: Floats, targets: NDArray[Any], labels: Labels) -> dict[str, Any]:
    """The temperature of least nll on these texts, and the calibration error under it; empty where they are few."""
    known = targets != IGNORE
    if labels.kind != "single" or known.sum() < MIN_CALIBRATION:
        return {}
    log_probs, true = log_probs_of(probabilities[known]), targets[known]
    temperature = fit_temperature(log_probs, true)
    scaled = log_probs_of(scale_temperature(probabilities[known], temperature))
    return {"temperature": temperature, "tempered_calibration_error": calibration_counts(scaled, true).value}
