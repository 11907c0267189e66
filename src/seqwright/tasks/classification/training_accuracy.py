"""Accuracy on a sample of the training texts, beside validation: the gap between them is overfitting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.data.labeled.sources import EncodedTexts
from seqwright.tasks.base import evenly_spaced
from seqwright.tasks.classification.predictor import Predictor

SAMPLE = 500
"""Training texts that are classified at an evaluation, at most; a standard error of two points at worst."""


def training_accuracy(predictor: Predictor, texts: EncodedTexts, targets: NDArray[Any], limit: int) -> dict[str, float]:
    """`train_accuracy` in per cent, of texts spread evenly over the training data, without dropout; at most `limit`."""
    sample = np.asarray(evenly_spaced(len(targets), min(SAMPLE, limit)))
    chosen = replace(texts, starts=texts.starts[sample], lengths=texts.lengths[sample])
    predicted = predictor([chosen]).outputs.argmax(1)
    known = targets[sample] != IGNORE
    return {"train_accuracy": 100 * float((predicted == targets[sample])[known].mean())}
