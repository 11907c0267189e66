"""Whether probabilities mean what they say: log loss, Brier score, calibration error, and a temperature against it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats

BINS = 15
"""Bins of equal width between 0 and 1 (Guo et al. 2017)."""
COLDEST, HOTTEST = 1e-2, 1e2
"""Temperatures are looked for in between."""

Ints = NDArray[np.int64]


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities (N, C)."""
    shifted = logits - logits.max(1, keepdims=True)
    log_probs: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_probs


def probability_counts(log_probs: Floats, wanted: Ints) -> Iterator[Counts]:
    """Of class probabilities (N, C): nll (log loss, in nats), Brier score (0 to 2), calibration error in per cent."""
    facts = f"examples:{len(wanted)}|classes:{log_probs.shape[1]}"
    one = np.ones(len(wanted))
    own = -log_probs[np.arange(len(wanted)), wanted]
    probs = np.exp(log_probs)
    brier = ((probs - (wanted[:, None] == np.arange(log_probs.shape[1]))) ** 2).sum(1)  # (N,) (Brier 1950)
    for name, values in (("nll", own), ("brier", brier)):
        rows = np.stack([values, one], 1)
        yield Counts(name=name, rows=rows, formula=mean, signature=f"{name}|{facts}", better=-1)
    yield calibration_counts(log_probs, wanted)


def calibration_counts(log_probs: Floats, wanted: Ints) -> Counts:
    """Calibration error of class probabilities."""
    signature = f"calibration_error|examples:{len(wanted)}|classes:{log_probs.shape[1]}|bins:{BINS}-equal-width"
    rows = _binned(log_probs, wanted)
    return Counts(name="calibration_error", rows=rows, formula=calibration_error, signature=signature, better=-1)


def calibration_error(sums: Floats) -> Floats:
    """The mean difference between confidence and accuracy over bins of confidence, in per cent (Naeini et al. 2015)."""
    many, confidence, right = np.split(sums, 3, axis=1)
    return 100 * np.abs(confidence - right).sum(1) / np.maximum(many.sum(1), 1)


def reliability(log_probs: Floats, wanted: Ints) -> list[dict[str, Any]]:
    """Of each bin of confidence that holds any example: how many, their mean confidence, and how many are right."""
    many, confidence, right = np.split(_binned(log_probs, wanted).sum(0), 3)
    return [
        {
            "from": n / BINS,
            "to": (n + 1) / BINS,
            "examples": int(many[n]),
            "confidence": float(confidence[n] / many[n]),
            "accuracy": float(right[n] / many[n]),
        }
        for n in np.flatnonzero(many)
    ]


def _binned(log_probs: Floats, wanted: Ints) -> Floats:
    """(N, 3 BINS): in the bin of an example's confidence, 1, that confidence, and whether it was right."""
    confidence, answered = np.exp(log_probs.max(1)), log_probs.argmax(1)
    # A bin holds its upper end but not its lower one, as in the paper.
    own = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    bins = (own[:, None] == np.arange(BINS)).astype(np.float64)
    return np.concatenate([bins, bins * confidence[:, None], bins * (answered == wanted)[:, None]], 1)


def temperature(logits: Floats, wanted: Ints) -> float:
    """The T under which softmax(logits / T) finds the wanted classes most probable (Guo et al. 2017).

    The loss is convex in 1 / T, so the place where its slope changes sign is the only one.
    """
    low, high = 1 / HOTTEST, 1 / COLDEST
    own = logits[np.arange(len(wanted)), wanted]
    for _ in range(60):
        middle = np.sqrt(low * high)
        probs = np.exp(log_softmax(middle * logits))
        slope = ((probs * logits).sum(1) - own).mean()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(1 / np.sqrt(low * high))
