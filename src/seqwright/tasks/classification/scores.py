"""Metrics of a classifier, and the scores that an evaluation reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from seqwright import __version__
from seqwright.core.batch import IGNORE
from seqwright.core.config import UserError, check_not_negative
from seqwright.data.labeled.labels import Labels, Unknown
from seqwright.metrics.calibration import log_softmax, probability_counts
from seqwright.metrics.classification import class_counts, multilabel_counts
from seqwright.metrics.correlation import regression_counts
from seqwright.metrics.counts import Counts, mean
from seqwright.metrics.score import Floats, signature
from seqwright.reporting.classification import class_report
from seqwright.tasks.scores import Scores

MIN_PROBABILITY = 1e-15
"""Probabilities are clipped to this from below before the logarithm."""


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluationConfig:
    unknown: Unknown = "few"
    """What to do with texts whose label is unknown: count them as wrong unless they are more than half (few), count
    them as wrong however many they are (wrong), or refuse the file and name the line (refuse). In multi-label data
    each unknown label is a false negative."""
    resamples: int = 1000
    """Bootstrap resamples for confidence intervals; 0 for none."""
    seed: int = 1
    """Seed of the bootstrap."""

    def __post_init__(self) -> None:
        check_not_negative(self, "resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions:
    threshold: float = 0.5
    """Minimum probability of a predicted label, for multi-label data."""
    temperature: float | None = None
    """Temperature scaling: divides the logits of classes; above 1 is less confident. Default: fitted to the validation
    data (Guo et al. 2017)."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold lies between 0 and 1, not at {self.threshold}.")
        if self.temperature is not None and self.temperature <= 0:
            raise UserError(f"temperature must be above 0, but is {self.temperature:g}.")


class ClassificationScores(Scores):
    """Scores with tables of classes and errors, and warnings about unknown labels and truncation."""

    def __init__(self, table: Mapping[str, Any], *, truncation: str):
        super().__init__(table)
        self.truncation = truncation

    def details(self) -> Iterator[str | Table]:
        yield from class_report(self["details"])
        if unknown := self.get("unlearned_labels"):
            single = "brier" in self
            left_out = "NLL, Brier score and calibration error leave these texts out."
            yield unseen_note("labels", unknown) + f" {left_out if single else 'NLL is over the other labels.'}"
        if cut := self.get("cut"):
            share = cut / self["texts"]
            yield (
                f"{cut:,} of {self['texts']:,} texts ({share:.1%}) were truncated;"
                f' data.truncation = "{self.truncation}".'
            )


def unseen_note(what: str, counts: Mapping[str, int]) -> str:
    """Labels or tags that were not in training, with their frequencies."""
    names = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))
    return f"{what} not seen in training, counted as wrong: {names}."


def classification_counts(
    outputs: Floats,
    targets: NDArray[Any],
    labels: Labels,
    options: ClassificationOptions,
    data_hash: str = "",
    *,
    unseen: int = 1,
) -> Iterator[Counts]:
    """Counts of each text: nll and the metrics of the kind of labels; `unseen` labels are not in training."""
    scaled = options.temperature is not None and labels.kind == "single"
    facts = signature(
        temperature=f"{options.temperature:.4g}" if scaled else None, text=data_hash[:8] or None, seqwright=__version__
    )
    for counts in COUNTS[labels.kind](outputs, targets, labels, options, unseen):
        yield replace(counts, signature=signature(counts.signature, facts))


def log_probs_of(probabilities: Floats) -> Floats:
    """Logarithms of probabilities, which are clipped at MIN_PROBABILITY."""
    return np.log(np.maximum(probabilities, MIN_PROBABILITY))


def scale_temperature(probabilities: Floats, temperature: float | None) -> Floats:
    """Class probabilities (N, C) softened (T > 1) or sharpened: softmax(log p / T) (Guo et al. 2017)."""
    if temperature in (None, 1):
        return probabilities
    return np.exp(log_softmax(log_probs_of(probabilities) / temperature))


def scaled_outputs(outputs: Floats, labels: Labels, options: ClassificationOptions) -> Floats:
    """Outputs at the temperature of the options, which is of class probabilities alone."""
    return scale_temperature(outputs, options.temperature) if labels.kind == "single" else outputs


def _class_counts(
    outputs: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions, unseen: int
) -> Iterator[Counts]:
    known = targets != IGNORE
    yield from class_counts(outputs.argmax(1), targets, labels.names, unseen=unseen)
    yield from probability_counts(log_probs_of(outputs[known]), targets[known])


def _multilabel_counts(
    outputs: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions, unseen: int
) -> Iterator[Counts]:
    true = targets[:, : outputs.shape[1]] > 0  # labels absent from training have no probability
    log_probs = log_probs_of(np.where(true, outputs, 1 - outputs))
    rows = np.stack([-log_probs.sum(1), np.full(len(outputs), float(outputs.shape[1]))], 1)
    facts = signature("nll", examples=len(outputs), classes=outputs.shape[1])
    yield Counts(name="nll", rows=rows, formula=mean, signature=facts, better=-1)
    yield from multilabel_counts(outputs >= options.threshold, targets, labels.names, unseen=unseen)


def _regression_counts(
    outputs: Floats, targets: NDArray[Any], labels: Labels, options: ClassificationOptions, unseen: int
) -> Iterator[Counts]:
    true = targets[:, 0].astype(np.float64) * labels.deviation + labels.mean
    # Under the normal distribution of the RegressionHead, in standard deviations of the training values.
    nll = np.pi * ((outputs[:, 0] - true) / labels.deviation) ** 2
    rows = np.stack([nll, np.ones(len(outputs))], 1)
    facts = signature("nll", unit=f"{labels.deviation:.4g}", examples=len(outputs))
    yield Counts(name="nll", rows=rows, formula=mean, signature=facts, better=-1)
    yield from regression_counts(outputs[:, 0], true)


COUNTS: dict[str, Callable[[Floats, NDArray[Any], Labels, ClassificationOptions, int], Iterator[Counts]]] = {
    "single": _class_counts,
    "multi": _multilabel_counts,
    "regression": _regression_counts,
}
"""Metrics by kind of labels."""
