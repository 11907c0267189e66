"""Classification metrics as additive counts: accuracy, F1, Matthews correlation; confusion matrix and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqwright.core.batch import IGNORE
from seqwright.metrics.counts import Counts, percentage, prf_row
from seqwright.metrics.score import Floats, signature

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def class_counts(predicted: Ints, targets: Ints, classes: Sequence[str], *, unseen: int = 1) -> Iterator[Counts]:
    """Single-label metrics: accuracy, macro and weighted F1, Matthews correlation, and binary F1 for two classes, the
    second being the positive one. Labels absent from training (IGNORE) are never predicted: their counts are of one
    extra class, but macro F1 is over all `unseen` of them (decision 231)."""
    targets = np.where(targets == IGNORE, len(classes), targets)
    accuracy = np.stack([predicted == targets, np.ones(len(targets))], 1).astype(np.float64)
    yield Counts(name="accuracy", rows=accuracy, formula=percentage, signature=_signature("accuracy", targets, classes))
    predicted_one_hot, target_one_hot = (_one_hot(ids, len(classes) + 1) for ids in (predicted, targets))
    yield from _f1_counts(predicted_one_hot, target_one_hot, classes, unseen=unseen)
    rows = _outcomes(predicted_one_hot, target_one_hot)
    yield Counts(name="matthews", rows=rows, formula=matthews, signature=_signature("matthews", targets, classes))


def multilabel_counts(
    predicted: Flags, targets: Flags | Floats, labels: Sequence[str], *, unseen: int = 1
) -> Iterator[Counts]:
    """Multi-label metrics of indicator matrices (N, C): subset accuracy, micro, macro and weighted F1. One more column
    of targets is the number of labels absent from training, which are never predicted; macro F1 is over all `unseen` of
    them."""
    predicted = np.pad(predicted, [(0, 0), (0, targets.shape[1] - predicted.shape[1])])
    accuracy = np.stack([(predicted == targets).all(1), np.ones(len(targets))], 1).astype(np.float64)
    yield Counts(name="accuracy", rows=accuracy, formula=percentage, signature=_signature("accuracy", targets, labels))
    rows = _outcomes(predicted, targets)
    yield Counts(name="micro_f1", rows=rows, formula=micro_f1, signature=_signature("micro_f1", targets, labels))
    yield from _f1_counts(predicted, targets, labels, binary=False, unseen=unseen)


def _f1_counts(
    predicted: Flags, targets: Flags | Floats, classes: Sequence[str], *, binary: bool = True, unseen: int = 1
) -> Iterator[Counts]:
    rows = _outcomes(predicted, targets)
    if binary and len(classes) == 2:
        # Every C-th column from 1: true positives, predictions and targets of the positive class.
        facts = signature(_signature("f1", targets, classes), positive=classes[1])
        yield Counts(name="f1", rows=rows[:, 1 :: targets.shape[1]], formula=macro_f1, signature=facts)
    f1, occurrences, _ = _f1_by_class(rows.sum(0, keepdims=True))
    beyond = unseen - 1 if targets.shape[1] > len(classes) and targets[:, -1].any() else 0
    averaged = int((occurrences > 0).sum()) + beyond
    yield Counts(
        name="macro_f1",
        rows=rows,
        formula=partial(macro_f1, beyond=beyond),
        resampled=partial(_mean_f1, of_all=f1, classes=averaged),
        signature=signature("macro_f1", examples=len(targets), classes=averaged),
    )
    facts = _signature("weighted_f1", targets, classes)
    yield Counts(name="weighted_f1", rows=rows, formula=weighted_f1, signature=facts)


def _outcomes(predicted: Flags, targets: Flags | Floats) -> Floats:
    """(N, 3 C): true positives, predictions and targets of each class, for each example."""
    return np.concatenate([predicted & (targets > 0), predicted, targets], 1).astype(np.float64)


def _one_hot(classes: Ints, count: int) -> Flags:
    one_hot: Flags = classes[:, None] == np.arange(count)
    return one_hot


def _f1_by_class(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """F1, predicted + actual and actual examples of each class: three (N, C)."""
    true_positives, predicted, targets = np.split(sums, 3, axis=1)
    return 200 * true_positives / np.maximum(predicted + targets, 1), predicted + targets, targets


def macro_f1(sums: Floats, *, beyond: int = 0) -> Floats:
    """Unweighted mean F1 of the classes that occur in predictions or targets, in per cent, and of so many others, whose
    F1 is 0."""
    f1, occurrences, _ = _f1_by_class(sums)
    return f1.sum(1) / np.maximum((occurrences > 0).sum(1) + beyond, 1)


def _mean_f1(sums: Floats, *, of_all: Floats, classes: int) -> Floats:
    """The same of resamples, over a fixed number of classes: a rare one that was not drawn has its F1 of all examples.

    Without it, the average would be over the frequent classes, and the score might lie outside its own interval.
    """
    f1, occurrences, _ = _f1_by_class(sums)
    return np.where(occurrences > 0, f1, of_all).sum(1) / max(classes, 1)


def weighted_f1(sums: Floats) -> Floats:
    """Mean F1 of the classes weighted by support, in per cent."""
    f1, _, support = _f1_by_class(sums)
    return (f1 * support).sum(1) / np.maximum(support.sum(1), 1)


def micro_f1(sums: Floats) -> Floats:
    """F1 of counts pooled over classes, in per cent; equals accuracy for single labels."""
    true_positives, predicted, targets = (part.sum(1) for part in np.split(sums, 3, axis=1))
    return 200 * true_positives / np.maximum(predicted + targets, 1)


def matthews(sums: Floats) -> Floats:
    """Multi-class Matthews correlation, -1 to 1 (Gorodkin 2004); 0 if predictions or targets have a single class."""
    true_positives, predicted, targets = np.split(sums, 3, axis=1)
    examples = targets.sum(1)
    covariance = true_positives.sum(1) * examples - (predicted * targets).sum(1)
    variances = (examples**2 - (predicted**2).sum(1)) * (examples**2 - (targets**2).sum(1))
    return covariance / np.sqrt(np.maximum(variances, 1))  # with a single class the covariance is 0 as well


def confusion_matrix(predicted: Ints, targets: Ints, classes: int) -> Ints:
    """(C, C): examples of class i predicted as class j."""
    return np.bincount(targets * classes + predicted, minlength=classes**2).reshape(classes, classes)


def per_class(predicted: Flags, targets: Flags, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Classification report: support, predictions, precision, recall and F1 of each class."""
    true_positives, predictions, support = (predicted & targets).sum(0), predicted.sum(0), targets.sum(0)
    return [
        prf_row(name, int(true_positives[n]), int(predictions[n]), int(support[n])) for n, name in enumerate(classes)
    ]


def _signature(name: str, targets: NDArray[Any], classes: Sequence[str]) -> str:
    return signature(name, examples=len(targets), classes=len(classes))
