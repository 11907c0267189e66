"""Calibration of class probabilities: log loss, Brier score, expected calibration error, temperature scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats, signature

BINS = 15
"""Equal-width confidence bins between 0 and 1 (Guo et al. 2017)."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-2, 1e2
"""Search range of `fit_temperature`."""

Ints = NDArray[np.int64]


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities (N, C) of logits (N, C)."""
    shifted = logits - logits.max(1, keepdims=True)
    log_probs: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_probs


def probability_counts(log_probs: Floats, targets: Ints) -> Iterator[Counts]:
    """Counts of nll (log loss, nats), multi-class Brier score (0 to 2) and calibration error (0 to 1)."""
    facts = signature(examples=len(targets), classes=log_probs.shape[1])
    ones = np.ones(len(targets))
    nll = -log_probs[np.arange(len(targets)), targets]
    probs = np.exp(log_probs)
    brier = ((probs - (targets[:, None] == np.arange(log_probs.shape[1]))) ** 2).sum(1)  # (N,) (Brier 1950)
    for name, values in (("nll", nll), ("brier", brier)):
        rows = np.stack([values, ones], 1)
        yield Counts(name=name, rows=rows, formula=mean, signature=signature(name, facts), better=-1)
    yield calibration_counts(log_probs, targets)


def calibration_counts(log_probs: Floats, targets: Ints) -> Counts:
    """Counts of the expected calibration error (ECE) of class log-probabilities (N, C)."""
    facts = signature(examples=len(targets), classes=log_probs.shape[1], bins=f"{BINS}-equal-width")
    rows = _binned(log_probs, targets)
    return Counts(
        name="calibration_error",
        rows=rows,
        formula=calibration_error,
        signature=signature("calibration_error", facts),
        better=-1,
        biased=True,  # of |confidence - accuracy| in bins, which resampling only spreads
    )


def calibration_error(sums: Floats) -> Floats:
    """ECE (Naeini et al. 2015): mean |confidence - accuracy| over the bins, weighted by examples, 0 to 1."""
    examples, confidence, correct = np.split(sums, 3, axis=1)
    error: Floats = np.abs(confidence - correct).sum(1) / np.maximum(examples.sum(1), 1)
    return error


def reliability(log_probs: Floats, targets: Ints) -> list[dict[str, Any]]:
    """Reliability diagram: examples, mean confidence and accuracy of each non-empty bin of confidence."""
    examples, confidence, correct = np.split(_binned(log_probs, targets).sum(0), 3)
    return [
        {
            "from": n / BINS,
            "to": (n + 1) / BINS,
            "examples": int(examples[n]),
            "confidence": float(confidence[n] / examples[n]),
            "accuracy": float(correct[n] / examples[n]),
        }
        for n in np.flatnonzero(examples)
    ]


def _binned(log_probs: Floats, targets: Ints) -> Floats:
    """(N, 3 BINS): in the bin of an example's confidence 1, the confidence, and whether the prediction is correct."""
    confidence, predicted = np.exp(log_probs.max(1)), log_probs.argmax(1)
    # Bins are half-open, (lower, upper], as in the paper.
    bin_index = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    bins = (bin_index[:, None] == np.arange(BINS)).astype(np.float64)
    return np.concatenate([bins, bins * confidence[:, None], bins * (predicted == targets)[:, None]], 1)


def fit_temperature(logits: Floats, targets: Ints) -> float:
    """Temperature scaling: the T that minimizes the nll of softmax(logits / T) (Guo et al. 2017).

    The nll is convex in 1 / T, so bisection on the sign of its derivative finds the minimum.
    """
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    target_logits = logits[np.arange(len(targets)), targets]
    for _ in range(60):  # geometric bisection over four decades, to below float64 precision
        inverse = np.sqrt(low * high)
        probs = np.exp(log_softmax(inverse * logits))
        slope = ((probs * logits).sum(1) - target_logits).mean()
        low, high = (low, inverse) if slope > 0 else (inverse, high)
    return float(1 / np.sqrt(low * high))
