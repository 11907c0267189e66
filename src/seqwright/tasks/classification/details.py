"""Beyond scores of a classifier: which classes are mistaken for which, how sure it is, and what it gets most wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.data.labeled.labels import Labels
from seqwright.data.labeled.rows import Row
from seqwright.metrics.calibration import calibration_counts, fit_temperature, reliability
from seqwright.metrics.classification import confusion_matrix, per_class
from seqwright.metrics.score import Floats
from seqwright.tasks.classification.scores import ClassificationOptions, log_probs_of, tempered

WORST = 10
"""Mistakes shown unless told otherwise."""
FEWEST = 50
"""Texts from which on a temperature can be fitted."""


def details(
    found: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], options: ClassificationOptions
) -> dict[str, Any]:
    """The confusion matrix, the table of classes, reliability and the worst mistakes; nothing of values."""
    if labels.kind == "regression":
        return {}
    if labels.kind == "multi":
        return {"per_class": per_class(found >= options.threshold, targets > 0, labels.names)}
    known = targets != IGNORE
    answered, wanted = found.argmax(1), targets
    classes = np.arange(len(labels.names))
    return {
        "classes": list(labels.names),
        "confusion": confusion_matrix(answered[known], wanted[known], len(classes)).tolist(),
        "per_class": per_class(answered[:, None] == classes, wanted[:, None] == classes, labels.names),
        "reliability": reliability(log_probs_of(found[known]), wanted[known]),
        "mistakes": label_errors(found, targets, labels, rows, WORST, wrong=True),
    }


def label_errors(
    found: Floats, targets: NDArray[Any], labels: Labels, rows: Sequence[Row], many: int, *, wrong: bool = False
) -> list[dict[str, Any]]:
    """The texts whose label the model finds least probable, the worst first: hard ones, and wrong labels (Northcutt et
    al. 2021). `wrong`: those answered otherwise, the surest first."""
    known = targets != IGNORE
    own = np.where(known, found[np.arange(len(found)), np.where(known, targets, 0)], 1.0)
    ranking = -found.max(1) if wrong else own
    order = [n for n in np.argsort(ranking, kind="stable")[: len(rows)] if known[n]]
    if wrong:
        order = [n for n in order if found[n].argmax() != targets[n]]
    return [
        {
            "text": " | ".join(rows[n].texts),
            "place": rows[n].place,
            "label": rows[n].label,
            "answered": labels.names[int(found[n].argmax())],
            "probability": float(found[n].max()),
            "of_label": float(own[n]),
        }
        for n in order[:many]
    ]


def calibrated(found: Floats, targets: NDArray[Any], labels: Labels) -> dict[str, Any]:
    """The temperature that suits these texts, and the calibration error it leaves on them; none where they are few."""
    known = targets != IGNORE
    if labels.kind != "single" or known.sum() < FEWEST:
        return {}
    log_probs, wanted = log_probs_of(found[known]), targets[known]
    best = fit_temperature(log_probs, wanted)
    left = calibration_counts(log_probs_of(tempered(found[known], best)), wanted).value
    return {"temperature": best, "tempered_calibration_error": left}
